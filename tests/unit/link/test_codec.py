"""Frames to bytes and back, and what is no frame."""

from __future__ import annotations

import msgspec
import pytest

from bridge.link import limits
from bridge.link.codec import LIMITS, check, decode, encode
from bridge.link.frames import (
    AnyFrame,
    BrokenFrame,
    Close,
    Credit,
    Frame,
    Notice,
    OpenStream,
    Ping,
    Pong,
    ReceiptFrame,
    StreamOpened,
    clipped,
    name_of,
)
from dedup.verdict import Verdict
from tests.unit.link.helpers import HELLO, WELCOME, raw

EXAMPLES: list[AnyFrame] = [
    HELLO,
    WELCOME,
    OpenStream(0, "journal:aa:orders:0", "orders", "orders.eu", "run-1"),
    StreamOpened(0, None),
    StreamOpened(3, 2**50, "run-1", 2**32 - 1, 7),
    ReceiptFrame(0, Verdict.REFUSED, 5, 4, "MESSAGE_TOO_LARGE: 10 bytes", 0, 1),
    Credit(1),
    Ping(1, 2),
    Pong(1, 2, 3),
    Notice(b""),
    Notice(bytes(limits.NOTICE_MOST)),
    Close("GOODBYE"),
]


@pytest.mark.parametrize("frame", EXAMPLES, ids=name_of)
def test_a_frame_comes_back_as_it_was(frame: AnyFrame) -> None:
    assert decode(encode(frame)) == frame


def test_a_frame_is_an_array_that_begins_with_its_name() -> None:
    assert msgspec.msgpack.decode(encode(Ping(1, 2))) == ["PING", 1, 2]


def test_every_frame_has_its_limits() -> None:
    assert {name_of(frame) for frame in LIMITS} == {name_of(frame) for frame in Frame.__subclasses__()}


def test_fields_that_a_later_version_appends_are_ignored_and_missing_last_ones_take_their_defaults() -> None:
    assert decode(raw("PING", 1, 2, "new")) == Ping(1, 2)
    assert decode(raw("CLOSE", "GOODBYE")) == Close("GOODBYE", "", permanent=False)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"no frame", raw(), raw("GREETINGS", 1), raw(1, 2), raw("PING", "1", 2), raw("PING", 1)],
    ids=repr,
)
def test_what_is_no_frame_is_broken_and_its_size_is_named(data: bytes) -> None:
    with pytest.raises(BrokenFrame, match=rf"no frame of core-bridge\.1 in {len(data)} bytes"):
        decode(data)


def test_bytes_after_a_frame_are_no_part_of_it() -> None:
    with pytest.raises(BrokenFrame):
        decode(encode(Ping(1, 2)) + b"\x00")


def test_arrays_nested_beyond_reason_are_broken_not_a_crash() -> None:
    with pytest.raises(BrokenFrame):
        decode(b"\x95\xa7RECEIPT" + b"\x91" * 100_000)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (raw("PING", -1, 2), f"PING.number: 0 to {2**53}; found -1"),
        (raw("PING", 2**53 + 1, 2), f"PING.number: 0 to {2**53}; found {2**53 + 1}"),
        (raw("CREDIT", 0), f"CREDIT.bytes: 1 to {2**53}; found 0"),
        (raw("OPENED", 0, 2**50 + 1), f"OPENED.next: 0 to {2**50}; found {2**50 + 1}"),
        (raw("OPENED", 10_000, None), "OPENED.index: 0 to 9999; found 10000"),
        (raw("OPEN", 0, "", "a", "a"), "OPEN.identity: length 1 to 1024; found 0"),
        (raw("OPEN", 0, "s", "a" * 250, "a"), "OPEN.address: length 1 to 249; found 250"),
        (raw("NOTICE", bytes(49_153)), "NOTICE.body: length 0 to 49152; found 49153"),
        (raw("CLOSE", "C" * 65), "CLOSE.code: length 1 to 64; found 65"),
    ],
)
def test_a_field_beyond_its_limit_is_named_with_both_numbers(data: bytes, says: str) -> None:
    with pytest.raises(BrokenFrame) as caught:
        decode(data)
    assert caught.value.detail == says


def test_a_hello_of_settings_beyond_the_limits_is_found_before_it_is_sent() -> None:
    with pytest.raises(BrokenFrame, match=r"HELLO\.bridge: length 1 to 255; found 256"):
        check(msgspec.structs.replace(HELLO, bridge="b" * 256))


def test_long_texts_are_cut_to_what_a_frame_takes() -> None:
    assert clipped("short") == "short"
    assert clipped("x" * 2000) == "x" * (limits.TEXT_MOST - 1) + "…"
    check(Close("PROTOCOL", clipped("x" * 2000)))


def test_the_largest_notice_is_a_frame_that_a_sender_takes() -> None:
    assert len(encode(Notice(bytes(limits.NOTICE_MOST)))) <= limits.ANSWER_MOST


def test_the_largest_frame_follows_max_message_size_but_never_below_what_a_batch_needs() -> None:
    assert limits.largest_frame(1) == 20 * limits.MIB
    assert limits.largest_frame(16 * limits.MIB) == 20 * limits.MIB
    assert limits.largest_frame(100 * limits.MIB) == 104 * limits.MIB
