"""What the headers of a POST say about its message."""

from __future__ import annotations

import pytest

from bridge.errors import BridgeError, InvalidDuplicateId, Malformed
from bridge.http.problems import UnsupportedMediaType
from bridge.http.send_headers import SendHeaders, unquoted

ID_SIZE_MAX = 1024


def id_of(*headers: tuple[bytes, bytes]) -> bytes | None:
    return SendHeaders(headers).duplicate_id(ID_SIZE_MAX)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ((b"Idempotency-Key", b'"abc"'), b"abc"),
        ((b"Idempotency-Key", b"abc"), b"abc"),
        ((b"idempotency-key", rb'"a\"b\\c"'), b'a"b\\c'),
        ((b"Idempotency-Key", b'a"b'), b'a"b'),
        ((b"Duplicate-Id", b"abc"), b"abc"),
        ((b"Duplicate-Id", b'"abc"'), b'"abc"'),
        ((b"_AMQ_DUPL_ID", b"abc"), b"abc"),
        ((b"_HQ_DUPL_ID", b"abc"), b"abc"),
        ((b"Message-Header-_AMQ_DUPL_ID", b"abc"), b"abc"),
        ((b"message-header-_hq_dupl_id", b"abc"), b"abc"),
        ((b"Duplicate-Id", "é".encode()), "é".encode()),
        ((b"Duplicate-Id", b"\xe9\xff"), b"\xe9\xff"),
    ],
)
def test_each_header_can_carry_the_id_byte_for_byte(header: tuple[bytes, bytes], expected: bytes) -> None:
    """D3: text and bytes are one ID where their bytes are the same."""
    assert id_of(header) == expected


def test_an_id_among_the_messages_headers_stays_there_under_artemis_name() -> None:
    sent = SendHeaders([(b"Message-Header-_amq_dupl_id", b"abc"), (b"Message-Header-Region", b"eu")])
    assert sent.headers == [("_AMQ_DUPL_ID", b"abc"), ("region", b"eu")]


def test_a_cloud_event_is_identified_by_source_and_id_together() -> None:
    assert id_of((b"ce-id", b"7"), (b"CE-Source", b"/shop")) == b"/shop 7"
    assert id_of((b"ce-id", b"7")) is None
    assert id_of((b"ce-source", b"/shop")) is None


def test_no_header_no_id() -> None:
    assert id_of((b"Host", b"x"), (b"Content-Type", b"text/plain")) is None


def test_the_same_id_twice_is_one_id() -> None:
    assert id_of((b"Idempotency-Key", b'"a"'), (b"Duplicate-Id", b"a"), (b"_AMQ_DUPL_ID", b"a")) == b"a"


@pytest.mark.parametrize(
    "headers",
    [
        ((b"Idempotency-Key", b"a"), (b"Duplicate-Id", b"b")),
        ((b"Duplicate-Id", b"a"), (b"Duplicate-Id", b"b")),
        ((b"Duplicate-Id", b"a"), (b"ce-id", b"1"), (b"ce-source", b"s")),
        ((b"Duplicate-Id", b"a"), (b"Message-Header-_AMQ_DUPL_ID", b"b")),
        ((b"Message-Header-_AMQ_DUPL_ID", b"a"), (b"Message-Header-_HQ_DUPL_ID", b"b")),
        ((b"Message-Header-_AMQ_DUPL_ID", b""),),
        ((b"Duplicate-Id", b""),),
        ((b"Idempotency-Key", b'""'),),
        ((b"ce-id", b""), (b"ce-source", b"s")),
        ((b"ce-id", b"1"), (b"ce-source", b"")),
        ((b"Idempotency-Key", b'"abc'),),
        ((b"Idempotency-Key", b'"'),),
        ((b"Idempotency-Key", b'"a"b"'),),
        ((b"Idempotency-Key", rb'"a\n"'),),
    ],
)
def test_two_ids_an_empty_one_and_a_broken_quotation_are_refused(
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    """D3: an empty ID is a mistake, not the absence of one."""
    with pytest.raises(InvalidDuplicateId):
        id_of(*headers)


def test_an_id_above_its_limit_is_refused_with_both_numbers() -> None:
    sent = SendHeaders([(b"Duplicate-Id", b"x" * 11)])
    assert SendHeaders([(b"Duplicate-Id", b"x" * 10)]).duplicate_id(10) == b"x" * 10
    with pytest.raises(InvalidDuplicateId) as caught:
        sent.duplicate_id(10)
    assert (caught.value.limit, caught.value.found) == (10, 11)


def test_headers_of_the_message_are_kept_in_order_and_the_rest_is_not() -> None:
    sent = SendHeaders(
        [
            (b"Host", b"localhost"),
            (b"Content-Type", b"text/csv; header=present"),
            (b"Message-Header-Region", b"eu"),
            (b"User-Agent", b"curl"),
            (b"X-Request-Id", b"9"),
            (b"traceparent", b"00-1-2-01"),
            (b"Tracestate", b"a=b"),
            (b"Message-Header-REGION", b"\xff"),
            (b"CE-Type", b"order.made"),
            (b"Duplicate-Id", b"a"),
            (b"Authorization", b"Bearer secret"),
        ]
    )
    assert sent.headers == [
        ("content-type", b"text/csv; header=present"),
        ("region", b"eu"),
        ("traceparent", b"00-1-2-01"),
        ("tracestate", b"a=b"),
        ("region", b"\xff"),
        ("ce-type", b"order.made"),
    ]


def test_key_and_timestamp_are_read() -> None:
    sent = SendHeaders([(b"Message-Key", b"k\xe9"), (b"Message-Timestamp", b"1357034400000")])
    assert (sent.key, sent.timestamp) == (b"k\xe9", 1_357_034_400_000)
    assert SendHeaders([(b"Message-Timestamp", b"9223372036854775807")]).timestamp == 2**63 - 1
    assert (SendHeaders([]).key, SendHeaders([]).timestamp) == (None, -1)


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ((b"Message-Timestamp", b"-1"), Malformed),
        ((b"Message-Timestamp", b"1.5"), Malformed),
        ((b"Message-Timestamp", b""), Malformed),
        ((b"Message-Timestamp", b"9223372036854775808"), Malformed),
        ((b"Message-Timestamp", "١".encode()), Malformed),
        ((b"Message-Header-", b"x"), Malformed),
        ((b"Content-Encoding", b"gzip"), UnsupportedMediaType),
        ((b"Content-Encoding", b"identity, br"), UnsupportedMediaType),
    ],
)
def test_a_header_that_cannot_be_meant_is_refused(
    header: tuple[bytes, bytes], error: type[BridgeError]
) -> None:
    with pytest.raises(error):
        SendHeaders([header])


def test_msgpack_is_answered_where_it_is_asked_for() -> None:
    assert SendHeaders([(b"Accept", b"application/msgpack")]).msgpack
    assert not SendHeaders([(b"Accept", b"*/*")]).msgpack


def test_unquoting_undoes_quoting() -> None:
    for text in (b"a", b"a b", b'"', b"\\", b'a\\"b', b"\xc3\xa9"):
        quoted = b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        assert unquoted(quoted) == text
