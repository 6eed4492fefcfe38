"""The frame codec of batches: a batch as a frame and back. The messages inside are not opened (design rule
5).
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.link import limits
from bridge.link.frames import BatchFrame, BrokenFrame, ReceiptFrame, clipped
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, Origin, Queues, encode_message
from bridge.messages.hops import HOP_BYTES, HOPS_MOST, Hops
from bridge.messages.positions import Runs
from bridge.relay.ports import Receipt

#: A block's body begins with a msgpack array32: 0xdd and the number of messages, big-endian.
_BODY_HEADER_BYTES = 5


def to_frame(batch: Batch, number: int, index: int) -> BatchFrame:
    """The frame that carries `batch` as number `number` of a link, of its stream `index`."""
    block = batch.block
    return BatchFrame(
        number=number,
        index=index,
        from_=batch.from_,
        upto=batch.upto,
        runs=batch.runs,
        refused=batch.refused,
        checksum=batch.checksum,
        events=batch.events,
        count=batch.count,
        largest=block.largest if block else 0,
        block_checksum=block.checksum if block else 0,
        ids=block.ids if block else (),
        origins=block.origins if block else (),
        body=block.body if block else b"",
        hops=block.hops if block else (),
        copies=batch.copies,
        queues=block.queues if block else (),
    )


def to_batch(frame: BatchFrame, stream: str) -> Batch:
    """The batch in a frame, of the stream with this identity.

    Raises:
        BrokenFrame: fields that depend on each other disagree.
    """
    if frame.from_ > frame.upto:
        raise _broken("from", f"at most upto ({frame.upto})", frame.from_)
    _check_runs(frame.runs, frame.from_, frame.upto)
    _check_ascending("refused", frame.refused, frame.from_, frame.upto)
    for moment in frame.events:
        if not -1 <= moment <= limits.NUMBER_MOST:
            raise _broken("events", f"-1 to {limits.NUMBER_MOST}", moment)
    carried = run_arithmetic.count(frame.runs)
    if carried != frame.count:
        raise _broken("runs", f"{frame.count} positions, the count", carried)
    block = _block(frame) if frame.count or frame.body else None
    _check_ascending("copies", [position for position, _ in frame.copies], frame.from_, frame.upto)
    return Batch(
        stream=stream,
        from_=frame.from_,
        upto=frame.upto,
        runs=frame.runs,
        block=block,
        checksum=frame.checksum,
        refused=frame.refused,
        events=frame.events,
        copies=frame.copies,
    )


def _block(frame: BatchFrame) -> Block:
    """The block in a frame, its body's head and size checked against the frame's fields.

    Whether its messages can be read is checked where it is stored (`bridge.journal.rules.bridge_batches`),
    off the loop.
    """
    head = frame.body[:_BODY_HEADER_BYTES]
    if head != b"\xdd" + min(frame.count, 2**32 - 1).to_bytes(4, "big"):
        raise _broken("body", f"begin as an array32 of {frame.count}", head.hex() or "nothing")
    size = len(frame.body) - _BODY_HEADER_BYTES
    if frame.count * limits.MESSAGE_LEAST > size:
        raise _broken("count", f"at most what {size} bytes of messages hold", frame.count)
    if frame.largest > len(frame.body):
        raise _broken("largest", f"at most the body's {len(frame.body)}", frame.largest)
    if frame.largest * frame.count < size:
        raise _broken("largest", f"at least the mean of {frame.count} in {size} bytes", frame.largest)
    _check_ascending("ids", (index for index, _ in frame.ids), 0, frame.count)
    if frame.origins:
        _check_origins(frame.origins, frame.count)
    if frame.hops:
        _check_hops(frame.hops, frame.count)
    if frame.queues:
        _check_queues(frame.queues, frame.count)
    return Block(
        frame.count,
        frame.body,
        frame.largest,
        frame.block_checksum,
        frame.ids,
        frame.origins,
        frame.hops,
        frame.queues,
    )


def _check_origins(origins: Iterable[Origin], count: int) -> None:
    """Check that the origins are valid for duplicate IDs, and that there is one for each message."""
    stamped = 0
    for stream, first, last in origins:
        if not 0 <= first <= last < limits.POSITION_MOST:
            raise _broken("origins", f"ascend within [0, {limits.POSITION_MOST})", f"{first} to {last}")
        if len(stream) > limits.STREAM_MOST:
            raise _broken("origins", f"streams of at most {limits.STREAM_MOST} characters", len(stream))
        stamped += last - first + 1
    if stamped != count:
        raise _broken("origins", f"{count} positions, the count", stamped)


def _check_hops(runs: Hops, count: int) -> None:
    """Check that the runs hold whole hops, and cover all messages."""
    passed = 0
    for messages, value in runs:
        if messages < 1:
            raise _broken("hops", "runs of at least one message", messages)
        if len(value) % HOP_BYTES or len(value) > HOPS_MOST * HOP_BYTES:
            raise _broken("hops", f"at most {HOPS_MOST} of {HOP_BYTES} bytes", len(value))
        passed += messages
    if passed != count:
        raise _broken("hops", f"those of {count} messages, the count", passed)


def _check_queues(runs: Queues, count: int) -> None:
    """Check that the runs cover all messages, and name no queue twice for one."""
    named = 0
    for messages, names in runs:
        if messages < 1:
            raise _broken("queues", "runs of at least one message", messages)
        if len(set(names)) != len(names):
            raise _broken("queues", "names that differ", len(names))
        named += messages
    if named != count:
        raise _broken("queues", f"those of {count} messages, the count", named)


def _check_runs(runs: Runs, from_: int, upto: int) -> None:
    """Check that runs ascend within ``[from_, upto)``."""
    least = from_
    for first, last in runs:
        if not least <= first <= last < upto:
            raise _broken("runs", f"ascend within [{from_}, {upto})", f"{first} to {last}")
        least = last + 1


def _check_ascending(field: str, values: Iterable[int], least: int, end: int) -> None:
    """Check that values ascend within ``[least, end)``, none twice."""
    expected = least
    for value in values:
        if not expected <= value < end:
            raise _broken(field, f"ascend within [{least}, {end})", value)
        expected = value + 1


def _broken(field: str, rule: str, found: int | str) -> BrokenFrame:
    return BrokenFrame(f"BATCH.{field}: expected to be {rule}; found {found}", f"BATCH.{field}", rule, found)


def buffered_bytes(frame: BatchFrame, size: int) -> int:
    """Bytes that a batch takes in memory until it is answered, about: its frame of `size` bytes, and its
    lists.
    """
    lists = (frame.runs, frame.refused, frame.ids, frame.origins, frame.hops, frame.queues)
    names = sum(len(some) for _, some in frame.queues)
    return size + limits.ENTRY_BYTES * (sum(map(len, lists)) + names)


def first_above(batch: Batch, most: int) -> tuple[int, int]:
    """The position and encoded size of the batch's first message above `most` bytes; there must be one."""
    assert batch.block is not None
    sizes = (len(encode_message(message)) for message in batch.block.messages())
    return next(
        (position, size)
        for position, size in zip(run_arithmetic.positions(batch.runs), sizes, strict=True)
        if size > most
    )


def receipt_frame(receipt: Receipt, number: int) -> ReceiptFrame:
    """The frame that carries a receipt of batch `number`."""
    return ReceiptFrame(
        number=number,
        verdict=receipt.verdict,
        next=receipt.next,
        position=receipt.position,
        reason=clipped(receipt.reason),
        duplicates=receipt.duplicates,
        committed=receipt.committed,
    )


def to_receipt(frame: ReceiptFrame, stream: str, clock_offset_ms: int | None = None) -> Receipt:
    """The receipt in a frame, of the stream with this identity; the offset is the one that the link has
    measured.
    """
    return Receipt(
        stream=stream,
        verdict=frame.verdict,
        next=frame.next,
        position=frame.position,
        reason=frame.reason,
        duplicates=frame.duplicates,
        committed=frame.committed,
        clock_offset_ms=clock_offset_ms,
    )
