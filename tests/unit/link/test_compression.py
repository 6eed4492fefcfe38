"""Compressed frames at both machines: what is agreed on, what is taken, and what closes the link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bridge.link import limits
from bridge.link.batch_frames import to_frame
from bridge.link.codec import encode
from bridge.link.compressor import Compressor
from bridge.link.frames import AnyFrame, BodyFrame, Close, Hello, Ping, Welcome
from bridge.link.machine import LinkState, Machine
from bridge.link.receiver import Receiver
from bridge.link.receiving import Delivering, Greeted, NodeIdentity, PieceArrived
from bridge.link.room import LinkRoom
from bridge.link.sender import Sender
from bridge.link.zstd import compress, is_compressed
from bridge.messages.batch import Batch
from bridge.relay.counts import Traffic
from bridge.relay.ports import StreamState
from tests.unit.link.helpers import HELLO, IDENTITY, KIB, WELCOME, at, batch, sent, stored, tell
from tests.unit.link.test_bodies import OPEN, TAKES, body

OFFERS = msgspec.structs.replace(HELLO, compression=("zstd",))


def receiver_of(
    hello: Hello = OFFERS,
    identity: NodeIdentity = IDENTITY,
    room: LinkRoom | None = None,
    traffic: Traffic | None = None,
) -> Receiver:
    """A receiver with one stream open, for the sender of this HELLO."""
    receiver = Receiver(identity, call_timeout_ms=5_000, now=at(0), room=room, traffic=traffic)
    tell(receiver, hello)
    receiver.take_events()
    receiver.welcome(hello)
    tell(receiver, OPEN)
    receiver.opened(0, StreamState(0))
    receiver.take_events()
    sent(receiver)
    return receiver


def sender_of(compression: str = "zstd", welcome: Welcome = WELCOME) -> Sender:
    """A sender of this setting after the answer to its HELLO."""
    compressor = Compressor(compression)  # type: ignore[arg-type]
    hello = msgspec.structs.replace(HELLO, compression=compressor.offered)
    sender = Sender(hello, call_timeout_ms=5_000, now=at(0), compressor=compressor)
    assert sent(sender) == [hello]
    tell(sender, welcome)
    return sender


def tell_compressed(receiver: Receiver, *frames: AnyFrame) -> None:
    for frame in frames:
        receiver.receive(compress(encode(frame)), at(0))


def told(machine: Machine[Any]) -> str:
    """The reason for which the link was closed with PROTOCOL."""
    (close,) = [frame for frame in sent(machine) if isinstance(frame, Close)]
    assert (close.code, close.permanent) == ("PROTOCOL", False)
    return close.detail


def bulk(number: int, size: int, positions: int = 1) -> tuple[AnyFrame, Batch]:
    """A batch that shrinks to next to nothing, as a frame."""
    made = batch(number, number + positions, size)
    return to_frame(made, number, 0), made


# ---------------------------------------------------------------------- the handshake


@pytest.mark.parametrize(
    ("offered", "takes", "answer"),
    [
        (("zstd",), True, "zstd"),
        (("lz5", "zstd"), True, "zstd"),
        (("lz5",), True, ""),
        ((), True, ""),
        (("zstd",), False, ""),
    ],
)
def test_welcome_names_the_compression_that_both_ends_have(
    offered: tuple[str, ...], takes: bool, answer: str
) -> None:
    hello = msgspec.structs.replace(HELLO, compression=offered)
    receiver = Receiver(replace(IDENTITY, takes_compressed=takes), call_timeout_ms=5_000, now=at(0))
    tell(receiver, hello)
    assert receiver.take_events() == [Greeted(hello)]
    receiver.welcome(hello)
    assert sent(receiver) == [msgspec.structs.replace(WELCOME, compression=answer)]


def test_too_many_names_of_compressions_are_no_hello() -> None:
    receiver = Receiver(IDENTITY, call_timeout_ms=5_000, now=at(0))
    names = tuple(map(str, range(limits.COMPRESSIONS_MOST + 1)))
    tell(receiver, msgspec.structs.replace(HELLO, compression=names))
    assert "length <= 8" in told(receiver)


def test_a_sender_compresses_what_the_receiver_takes() -> None:
    for answer in ("", "zstd"):
        sender = sender_of(welcome=msgspec.structs.replace(WELCOME, compression=answer))
        frame, _ = bulk(0, 10 * KIB)
        assert is_compressed(sender.packed(frame, encode(frame), at(0))) == bool(answer)
        control = Ping(1, 2)
        assert sender.packed(control, encode(control), at(0)) == encode(control)


def test_a_compression_that_was_not_offered_ends_the_link() -> None:
    for compression, answer in (("off", "zstd"), ("auto", "lz5")):
        sender = sender_of(compression, msgspec.structs.replace(WELCOME, compression=answer))
        assert told(sender).startswith("WELCOME.compression: expected one of HELLO's")


# ---------------------------------------------------------------------- what is taken


def test_a_compressed_batch_is_taken_and_counts_as_it_is_in_memory() -> None:
    room, traffic = LinkRoom(1 << 30), Traffic()
    compressed, plain = receiver_of(room=room, traffic=traffic), receiver_of(room=LinkRoom(1 << 30))
    frame, whole = bulk(0, 9 * KIB)
    tell_compressed(compressed, frame)
    tell(plain, frame)
    assert compressed.take_events() == [Delivering(0, whole)] == plain.take_events()
    assert room.buffered > 9 * KIB, "credit and memory count what was unpacked"
    assert traffic.frame_bytes == len(encode(frame)) > 50 * traffic.wire_bytes
    for receiver in (compressed, plain):
        tell(receiver, *(bulk(1, KIB)[:1]))
        assert "credit for" in told(receiver)
    assert room.buffered == 0


def test_frames_of_either_form_may_follow_each_other() -> None:
    receiver = receiver_of()
    tell_compressed(receiver, bulk(0, 10)[0])
    tell(receiver, bulk(1, 10)[0], Ping(1, 2))
    tell_compressed(receiver, bulk(2, 10)[0])
    assert [type(event) for event in receiver.take_events()] == [Delivering] * 3
    for number in range(3):
        receiver.delivered(number, stored(number + 1))
    assert receiver.state is LinkState.OPEN


def test_the_chunks_of_a_large_body_may_be_compressed_each() -> None:
    receiver = receiver_of(identity=TAKES)
    pieces = [body(0), body(1)]
    tell_compressed(receiver, *pieces)
    taken = [event.piece for event in receiver.take_events() if isinstance(event, PieceArrived)]
    assert taken == [one.piece for one in pieces]


# ---------------------------------------------------------------------- what is refused


def test_a_compressed_frame_is_refused_where_none_was_agreed_on() -> None:
    for receiver in (receiver_of(HELLO), receiver_of(identity=replace(IDENTITY, takes_compressed=False))):
        tell_compressed(receiver, bulk(0, 10)[0])
        assert told(receiver) == "a compressed frame, where WELCOME names no compression"
    greeting = Receiver(IDENTITY, call_timeout_ms=5_000, now=at(0))
    tell_compressed(greeting, OFFERS)
    assert told(greeting) == "a compressed frame, where WELCOME names no compression"


def test_a_sender_takes_no_compressed_frame() -> None:
    sender = sender_of(welcome=msgspec.structs.replace(WELCOME, compression="zstd"))
    sender.receive(compress(encode(Ping(1, 2))), at(0))
    assert told(sender).startswith("no frame of core-bridge.1")


def test_only_batches_and_bodies_may_be_compressed() -> None:
    receiver = receiver_of()
    tell_compressed(receiver, Ping(1, 2))
    assert told(receiver) == "PING came compressed; only BATCH and BODY may"


def test_a_frame_that_was_compressed_twice_is_refused() -> None:
    receiver = receiver_of()
    receiver.receive(compress(compress(encode(bulk(0, 10)[0]))), at(0))
    assert told(receiver).startswith("no frame of core-bridge.1")


def test_a_second_frame_behind_a_compressed_one_is_refused() -> None:
    receiver = receiver_of()
    receiver.receive(compress(encode(bulk(0, 10)[0])) + compress(b""), at(0))
    assert told(receiver).startswith("zstd frame: expected ")


def test_a_content_above_the_largest_frame_is_refused_before_it_is_unpacked() -> None:
    receiver = receiver_of()
    most = limits.largest_frame(IDENTITY.max_message_size)
    receiver.receive(b"\x28\xb5\x2f\xfd\xa0" + (most + 1).to_bytes(4, "little"), at(0))
    assert told(receiver) == f"zstd content size: expected at most {most} bytes; found {most + 1}"


def test_a_content_above_what_is_left_of_the_credit_is_refused_before_it_is_unpacked() -> None:
    receiver = receiver_of()
    first, whole = bulk(0, KIB)
    tell_compressed(receiver, first)
    most = IDENTITY.credit - whole.size + limits.FRAME_SLACK
    receiver.receive(b"\x28\xb5\x2f\xfd\xa0" + (most + 1).to_bytes(4, "little"), at(0))
    assert told(receiver) == f"zstd content size: expected at most {most} bytes; found {most + 1}"


def test_a_batch_above_the_whole_credit_is_unpacked_when_nothing_is_unanswered() -> None:
    receiver = receiver_of()
    tell_compressed(receiver, bulk(0, 5 * KIB * KIB)[0])
    assert [type(event) for event in receiver.take_events()] == [Delivering]


def test_a_chunk_that_is_no_body_frame_ends_the_link_as_it_does_uncompressed() -> None:
    receiver = receiver_of(identity=TAKES)
    tell_compressed(receiver, BodyFrame(7, 0, 3 * KIB, 0, b"a" * KIB))
    assert told(receiver) == "BODY.index: below 1 expected; found 7"


def test_a_compressed_frame_that_waits_is_forgotten_with_its_link() -> None:
    room = LinkRoom(1)
    one, other = receiver_of(room=room), receiver_of(room=room)
    tell_compressed(one, bulk(0, KIB)[0])
    woken: list[str] = []
    waits, ended = lambda: woken.append("waits"), lambda: woken.append("ended")
    packed = compress(encode(bulk(0, KIB)[0]))
    assert one.may_take(encode(Ping(1, 2)), waits), "what is not compressed is there already"
    third = receiver_of(room=room)
    assert not other.may_take(packed, waits)
    assert not third.may_take(packed, ended)
    third.lost("gone")
    one.delivered(0, stored(1))
    assert woken == ["waits"]
    assert other.may_take(packed, waits)
    one.lost("gone")
    other.lost("gone")
    assert (room.kept, room.buffered, woken) == (0, 0, ["waits"])
