"""Cuts a delivery into parts that fit transactions, and makes one answer of theirs.

A batch may be larger than what a transaction can carry over a slow line. Its parts are stored in their order,
each in a transaction of its own where need be. If one is not taken, none behind it is: the stream is blocked.
What was stored before stays; the target's next says so at the stream's next opening (design rule 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.kafka.target.delivery import Delivery
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.cutting import divisions
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict

_TAKEN = (Verdict.STORED, Verdict.DUPLICATE)


def cut(delivery: Delivery, most_bytes: int) -> list[Delivery]:
    """The delivery as parts of at most so many bytes, or of one larger message: itself where it is one."""
    batches = cut_batch(delivery.batch, most_bytes)
    if len(batches) == 1:
        return [delivery]
    loop = delivery.future.get_loop()
    parts = [Delivery(batch, delivery.opened, loop.create_future()) for batch in batches]
    whole = _Whole(delivery.future, parts)
    for part in parts:
        part.future.add_done_callback(whole.answered)
    delivery.future.add_done_callback(whole.ended)
    return parts


def cut_batch(batch: Batch, most_bytes: int) -> Sequence[Batch]:
    """The batch as parts of at most so many bytes, or of one larger message; the last has its checksum."""
    if batch.block is None or batch.count < 2 or batch.size <= most_bytes:
        return [batch]
    sizes = [len(message.body or b"") + len(message.key or b"") for message in batch.block.messages()]
    besides = max(0, batch.size - sum(sizes)) // len(sizes)  # headers and IDs
    firsts = [start for start, _ in divisions([size + besides for size in sizes], most_bytes, batch.size)]
    parts: list[Batch] = []
    rest = batch
    for place in run_arithmetic.at(batch.runs, firsts[1:]):
        parts.append(rest.until(place))
        rest = rest.after(place)
    return [*parts, rest]


@dataclass(slots=True, eq=False)
class _Whole:
    """The delivery that was cut: it has its answer once all parts have one, or one is not taken."""

    #: An asyncio.Future of a `Receipt`.
    future: Any
    parts: Sequence[Delivery]
    #: The receipts of the first parts, all of which were taken.
    _receipts: list[Receipt] = field(default_factory=list)

    def answered(self, part: Any) -> None:
        """Take the answers that are there, in the order of the parts: of one cut again it comes later."""
        if not part.cancelled():
            part.exception()  # retrieved, so that asyncio does not log it
        while not self.future.done():
            first = self.parts[len(self._receipts)].future
            if not first.done() or first.cancelled():
                return
            if first.exception() is not None:
                self.future.set_exception(first.exception())
                return
            self._take(first.result())

    def _take(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)
        if receipt.verdict not in _TAKEN:
            self.future.set_result(receipt)
        elif len(self._receipts) == len(self.parts):
            self.future.set_result(_joined(self._receipts))

    def ended(self, _future: Any) -> None:
        """Drop the parts without an answer: no caller waits for them."""
        for part in self.parts:
            part.future.cancel()


def _joined(receipts: Sequence[Receipt]) -> Receipt:
    stored = any(receipt.verdict is Verdict.STORED for receipt in receipts)
    return replace(
        receipts[-1],
        verdict=Verdict.STORED if stored else Verdict.DUPLICATE,
        duplicates=sum(receipt.duplicates for receipt in receipts),
        repeated=sum(receipt.repeated for receipt in receipts),
        dead_lettered=tuple(position for receipt in receipts for position in receipt.dead_lettered),
    )
