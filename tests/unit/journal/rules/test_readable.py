"""What is let in as a block: what every reader can read, whoever encoded it."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import msgspec
import pytest

from bridge.errors import Malformed
from bridge.journal.rules.bridge_batches import _check_readable
from bridge.messages.block import Block, encode_message, pack
from bridge.messages.message import Message

GOOD = [
    encode_message(Message(None)),
    encode_message(Message(b"x", b"k", (("n", b"v"), ("n", None)), 2**63 - 1)),
    encode_message(Message(bytes(300), None, (), -(2**63))),
    encode_message(Message(bytes(70_000))),
    b"\x91\xc0",
    b"\xdc\x00\x04\xc0\xc0\x90\xff",
    b"\x95\xc0\xc0\x90\xff\xa5later",
]
BAD = [
    b"\x01", b"\xa1x", b"\xc0", b"\x90", b"\x91\x01", b"\x91\xa1t", b"\x92\xc0\xa1k", b"\x93\xc0\xc0\xc0",
    b"\x93\xc0\xc0\x91\xa1n", b"\x93\xc0\xc0\x91\x92\xc4\x01n\xc0", b"\x94\xc0\xc0\x90\xc0", b"\x80",
    b"\x94\xc0\xc0\x90\xcf" + b"\xff" * 8, b"\xdc\x00\x04\xa1t\xc0\x90\xff", b"\x91\x91\xc0",
]  # fmt: skip


def test_what_a_message_is_encoded_as_by_anyone_is_let_in(rng: random.Random) -> None:
    for _ in range(50):
        _check_readable(pack(rng.choices(GOOD, k=rng.randint(1, 9))))


@pytest.mark.parametrize("element", BAD, ids=bytes.hex)
def test_what_no_reader_could_read_is_not(element: bytes, rng: random.Random) -> None:
    for _ in range(20):
        elements = [*rng.choices(GOOD, k=rng.randint(0, 9)), element]
        rng.shuffle(elements)
        with pytest.raises((msgspec.DecodeError, Malformed, IndexError)):
            _check_readable(pack(elements))


def test_fields_that_do_not_say_what_is_there_are_named() -> None:
    block = pack(GOOD)
    for lying in (
        replace(block, count=block.count + 1),
        replace(block, largest=block.largest - 1),
        replace(block, checksum=zlib.crc32(b"another")),
    ):
        with pytest.raises(Malformed, match=r"found|holds|has"):
            _check_readable(lying)
    assert isinstance(block, Block)
