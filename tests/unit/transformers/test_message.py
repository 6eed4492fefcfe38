"""A message as a transformer sees and leaves it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.messages.message import Message as StoredMessage
from bridge.transformers.message import Message, shown, taken

ID = ("_AMQ_DUPL_ID", b"mine")


def seen(before: StoredMessage) -> Message:
    return shown(before, "orders", lambda: b"mine")


def test_it_shows_everything_but_the_headers_that_say_who_it_is() -> None:
    before = StoredMessage(b"body", b"key", (("a", b"1"), ID, ("a", None), ("core-bridge-hops", b"x")), 42)
    found = seen(before)
    assert (found.body, found.key, found.headers) == (b"body", b"key", [("a", b"1"), ("a", None)])
    assert (found.address, found.timestamp, found.duplicate_id) == ("orders", 42, b"mine")
    with pytest.raises(AttributeError):
        found.duplicate_id = b"other"  # type: ignore[misc]


def test_a_message_that_is_left_as_it_was_stays_the_one_that_was_read() -> None:
    before = StoredMessage(b"body", b"key", (("a", b"1"), ID, ("b", b"2")), 42)
    assert taken(before, seen(before)) is before


def test_body_key_and_headers_change_and_the_timestamp_stays() -> None:
    found = seen(StoredMessage(b"body", b"key", (("a", b"1"), ("b", b"2")), 42))
    found.body, found.key = None, None
    found.remove_header("a")
    found.set_header("b", b"3")
    found.headers.append(("c", None))
    made = taken(StoredMessage(b"body", b"key", (("a", b"1"), ("b", b"2")), 42), found)
    assert made == StoredMessage(None, None, (("b", b"3"), ("c", None)), 42)


def test_an_id_is_neither_removed_nor_written() -> None:
    """B14"""
    before = StoredMessage(b"body", None, (ID, ("a", b"1")), 42)
    found = seen(before)
    found.headers = [("_AMQ_DUPL_ID", b"other"), ("_HQ_DUPL_ID", b"other"), ("core-bridge-hops", b"x")]
    assert taken(before, found).headers == (ID,)
    without = StoredMessage(b"body")
    found = seen(without)
    found.set_header("_AMQ_DUPL_ID", b"other")
    assert taken(without, found) == without


WRONG: dict[str, tuple[str, Any]] = {
    "text as body": ("body", "text"),
    "bytearray as key": ("key", bytearray(b"k")),
    "bytes as name": ("headers", [(b"a", b"1")]),
    "text as value": ("headers", [("a", "1")]),
    "three of a header": ("headers", [("a", b"1", 2)]),
    "half of a pair": ("headers", [("\ud800", b"1")]),
    "no list": ("headers", 5),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_message_can_have_is_an_error(what: str) -> None:
    before = StoredMessage(b"body")
    found = seen(before)
    setattr(found, *WRONG[what])
    with pytest.raises((TypeError, ValueError)):
        taken(before, found)
