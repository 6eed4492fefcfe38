"""Frames, batches and moments that the link's tests are made of."""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.link.codec import decode, encode
from bridge.link.frames import AnyFrame, Hello, OpenStream, Ping, StreamOpened, Welcome
from bridge.link.machine import Machine, Now
from bridge.link.receiver import Receiver
from bridge.link.receiving import NodeIdentity
from bridge.link.room import LinkRoom
from bridge.link.sender import Sender
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream, StreamState
from dedup.verdict import Verdict

KIB = 1024
STREAM = Stream("journal:aa:orders:0", "orders", "orders.eu", "run-1")
OTHER = Stream("journal:aa:invoices:0", "invoices", "invoices", "run-1")

HELLO = Hello(
    version=1,
    node_id="11111111-1111-4111-8111-111111111111",
    node_name="edge",
    store="11111111-1111-4111-8111-111111111111:aa",
    bridge="orders-to-hub",
    check_producer_ids=False,
    use_duplicate_detection=True,
    producer_window=1 * KIB,
    check_period_ms=30_000,
    connection_ttl_ms=60_000,
)
IDENTITY = NodeIdentity("22222222-2222-4222-8222-222222222222", "hub", "hub-store", 16 * KIB * KIB, 10 * KIB)
WELCOME = Welcome(
    version=1,
    node_id=IDENTITY.node_id,
    node_name=IDENTITY.node_name,
    store=IDENTITY.store,
    credit=IDENTITY.credit,
    max_message_size=IDENTITY.max_message_size,
    max_frame_size=20 * KIB * KIB,
)


def at(ms: int) -> Now:
    """A moment of the fake clock; its epoch began 1,000,000 ms earlier."""
    return Now(ms, 1_000_000 + ms)


def batch(from_: int, upto: int, body: int = 10, stream: Stream = STREAM, **fields: Any) -> Batch:
    """A batch with a message of `body` bytes at every position."""
    block = pack([encode_message(Message(b"x" * body)) for _ in range(from_, upto)])
    given: dict[str, Any] = {"checksum": block.checksum, "events": (from_, upto)}
    return Batch(stream.identity, from_, upto, ((from_, upto - 1),), block, **given | fields)


def coverage(from_: int, upto: int, stream: Stream = STREAM) -> Batch:
    """A batch without messages."""
    return Batch(stream.identity, from_, upto)


def stored(upto: int, stream: Stream = STREAM) -> Receipt:
    return Receipt(stream.identity, Verdict.STORED, upto, committed=7)


def not_now(next_: int, stream: Stream = STREAM) -> Receipt:
    return Receipt(stream.identity, Verdict.NOT_NOW, next_, reason="ADDRESS_FULL: 10 bytes")


def refused(next_: int, position: int, stream: Stream = STREAM) -> Receipt:
    return Receipt(stream.identity, Verdict.REFUSED, next_, position, "MESSAGE_TOO_LARGE: 10 bytes")


def sent(machine: Machine[Any]) -> list[AnyFrame]:
    """Every frame that the machine sends now, as the other end reads it."""
    frames = []
    while (frame := machine.next_frame()) is not None:
        frames.append(decode(encode(frame)))
    return frames


def tell(machine: Machine[Any], *frames: AnyFrame, ms: int = 0) -> None:
    """What the other end sent."""
    for frame in frames:
        machine.receive(encode(frame), at(ms))


def ws_frame(data: bytes) -> bytes:
    """A message as its bytes come by the connection: in a WebSocket frame (RFC 6455, section 5.2) whose
    mask changes nothing.
    """
    size = len(data)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 1 << 16:
        length = bytes((0x80 | 126,)) + size.to_bytes(2)
    else:
        length = bytes((0x80 | 127,)) + size.to_bytes(8)
    return b"\x82" + length + bytes(4) + data


def new_sender(call_timeout_ms: int = 5_000) -> Sender:
    return Sender(HELLO, call_timeout_ms=call_timeout_ms, now=at(0))


def welcomed_sender(welcome: Welcome = WELCOME) -> Sender:
    """A sender after its handshake."""
    sender = new_sender()
    assert sent(sender) == [HELLO]
    tell(sender, welcome)
    sender.take_events()
    return sender


def open_sender(*streams: Stream, welcome: Welcome = WELCOME) -> Sender:
    """A sender with these streams (default: STREAM) open at next 0."""
    sender = welcomed_sender(welcome)
    streams = streams or (STREAM,)
    sender.open(streams, at(0))
    sent(sender)
    tell(sender, *(StreamOpened(index, 0) for index in range(len(streams))))
    assert sent(sender) == [Ping(1, at(0).epoch_ms)], "the clocks are compared before anything is in flight"
    sender.take_events()
    return sender


def new_receiver(identity: NodeIdentity = IDENTITY, room: LinkRoom | None = None) -> Receiver:
    return Receiver(identity, call_timeout_ms=5_000, now=at(0), room=room)


def open_receiver(
    *streams: Stream, identity: NodeIdentity = IDENTITY, room: LinkRoom | None = None, hello: Hello = HELLO
) -> Receiver:
    """A receiver with these streams (default: STREAM) open at next 0."""
    receiver = new_receiver(identity, room)
    tell(receiver, hello)
    receiver.take_events()
    receiver.welcome(hello)
    for index, stream in enumerate(streams or (STREAM,)):
        opening = OpenStream(index, stream.identity, stream.address, stream.target_address, stream.run)
        tell(receiver, opening)
        receiver.opened(index, StreamState(0))
    receiver.take_events()
    sent(receiver)
    return receiver


def raw(*fields: Any) -> bytes:
    """A message of any fields, well-formed msgpack and otherwise whatever it is."""
    return msgspec.msgpack.encode(fields)
