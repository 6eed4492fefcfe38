"""Messages of the bridge: header texts beside numbers, and the fields that each message has."""

from __future__ import annotations

import pytest

from bridge.filters import Byte, Filter, HeaderText, Short, System, Value, parse
from bridge.messages.block import encode_message
from bridge.messages.message import Header, Message


def made(condition: str) -> Filter:
    found = parse(condition)
    assert found is not None
    return found


def takes(condition: str, *headers: Header, **fields: object) -> bool:
    return made(condition).takes(Message(b"body", headers=headers, **fields), "orders")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "text", "result"),
    [
        ("x = 5", "5", True),
        ("5 = x", "5", True),
        ("x = 5", "5.0", True),
        ("x = 5.0", "5", True),
        ("x = 5", "+5", True),
        ("x = 500", "5e2", True),
        ("x <> 5", "5", False),
        ("x > 4", "5", True),
        ("x > 4", "10", True),
        ("4 > x", "10", False),
        ("x BETWEEN 1 AND 9", "5", True),
        ("x BETWEEN 1 AND 9", "50", False),
        ("x NOT BETWEEN 1 AND 9", "50", True),
        ("x = 9223372036854775807", "9223372036854775807", True),
        ("x > 9223372036854775807", "1" * 30, True),
        # What does not read as a number stays a text.
        ("x = 5", " 5", False),
        ("x <> 5", " 5", True),
        ("x = 5", "0x5", False),
        ("x > 0", "NaN", False),
        ("x > 0", "Infinity", False),
        ("x > 4", "five", False),
        ("x = 5", "٥", False),
        # Beside a text, a boolean or nothing it is a text, whatever it reads as.
        ("x = '5'", "5", True),
        ("x = '5.0'", "5", False),
        ("x = TRUE", "true", False),
        ("x", "true", False),
        ("x = 'true'", "true", True),
        ("x IN ('5')", "5", True),
        ("x NOT IN ('5')", "5", False),
        ("x LIKE '5%'", "50", True),
        ("x NOT LIKE '5%'", "5", False),
        # Arithmetic is no comparison.
        ("x + 1 = 6", "5", False),
        ("x + 1 = '51'", "5", True),
        ("-x IS NULL", "5", True),
        ("convert_string_expressions:x - 1 = 4", "5", True),
        ("convert_string_expressions:x = TRUE", "true", True),
        ("convert_string_expressions:x = 5", "5.0", True),
    ],
)
def test_a_header_is_a_number_beside_a_number_and_a_text_otherwise(
    condition: str, text: str, result: bool
) -> None:
    assert takes(condition, ("x", text.encode())) is result
    assert made(condition).matches({"x": HeaderText(text)}) is result


def test_a_calculation_with_a_header_on_the_left_cannot_be_evaluated() -> None:
    condition = made("x - 1 = 4")
    assert not condition.takes(Message(b"", headers=(("x", b"5"),)), "orders")
    assert condition.raised == 1


def test_two_headers_compare_as_texts() -> None:
    assert takes("x < y", ("x", b"10"), ("y", b"9"))
    assert not takes("x = y", ("x", b"5"), ("y", b"5.0"))


def test_a_header_has_no_width() -> None:
    properties: dict[str, Value] = {"x": HeaderText("5"), "byte": Byte(5), "short": Short(5)}
    assert made("x = byte AND byte = x AND x = short AND short = x").matches(properties)


def test_the_last_header_of_a_name_counts() -> None:
    assert takes("x = 2", ("x", b"1"), ("x", b"2"))
    assert takes("x IS NULL", ("x", b"1"), ("x", None))


def test_a_name_with_capitals_means_the_header_in_lower_case_where_none_has_it_exactly() -> None:
    assert takes("EVENT_TARGET = 'POOL' AND Event_Target LIKE 'P%'", ("event_target", b"POOL"))
    assert takes('EVENT_TARGET IS NOT NULL AND "Event-Target" IS NULL', ("event_target", b"POOL"))
    # The exact name goes first, in either order; of several, the last.
    for order in (1, -1):
        headers = (("X", b"exact"), ("x", b"lower"))[::order]
        assert takes("X = 'exact' AND x = 'lower'", *headers)
    assert takes("X = '2'", ("x", b"1"), ("x", b"2"))
    assert takes("X IS NULL", ("x", b"1"), ("X", None))
    # A name in lower case, or in another case, means no header with capitals.
    assert takes("x IS NULL AND xY IS NULL", ("X", b"1"), ("XY", b"1"), ("Xy", b"1"))
    assert takes("AMQDuplicateId = '7' AND AMQUserID = 'u'", ("amqduplicateid", b"7"), ("amquserid", b"u"))
    assert made("AMQDuplicateId = '8'").takes(Message(b"", headers=(("amqduplicateid", b"7"),)), "a", b"8")


def test_a_typed_property_has_the_case_of_its_name() -> None:
    condition = made("TARGET = 'POOL'")
    assert condition.matches_line({"target": HeaderText("POOL")}, System())
    assert not condition.matches_line({"target": "POOL"}, System())
    assert not condition.matches_line({"target": HeaderText("POOL"), "TARGET": None}, System())
    assert condition.matches_line({"target": HeaderText("x"), "TARGET": "POOL"}, System())
    assert not condition.matches({"target": HeaderText("POOL")})


def test_a_header_that_is_no_utf_8_compares_with_nothing() -> None:
    headers = (("x", b"\xff5"),)
    assert not takes("x = 5 OR x = '5' OR x LIKE '%' OR x IN ('5')", *headers)
    assert takes("x IS NOT NULL AND x <> 5 AND x = x", *headers)


def test_the_fields_that_a_message_has() -> None:
    message = Message(b"<a/>", b"key", (("JMSType", b"t"),), 17)
    for condition in (
        "AMQPriority = 4",
        "AMQDurable = 'DURABLE'",
        "AMQTimestamp = 17",
        "AMQExpiration = 0",
        f"AMQSize = {len(encode_message(message))}",
        "AMQAddress = 'orders'",
        "AMQUserID IS NULL",
        "AMQGroupID IS NULL",
        "AMQDuplicateId = 'id-7'",
        "JMSType = 't'",
        "JMSPriority IS NULL",
    ):
        assert made(condition).takes(message, "orders", b"id-7"), condition
    assert takes("AMQTimestamp = 0 AND AMQDuplicateId IS NULL")
