"""The batch: messages of one stream, and the positions it covers (design rule 1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.messages import positions as run_arithmetic
from bridge.messages.block import Block
from bridge.messages.message import CHUNK_BYTES, Message
from bridge.messages.positions import Runs


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages that a source reads together, and a target stores, all of them or none.

    Covers ``[from_, upto)``. Positions in that range that are not in `runs` were filtered, refused, expired
    or never existed: they are covered and carry no message.
    """

    #: Identity of the stream.
    stream: str
    #: First position covered.
    from_: int
    #: One beyond the last position covered.
    upto: int
    #: The exact positions of the block's messages; empty for coverage alone.
    runs: Runs = ()
    #: The messages; None for coverage alone.
    block: Block | None = None
    #: CRC-32 of the last covered source message, 0 where none is known.
    checksum: int = 0
    #: Positions that the target refused for good, now covered and empty.
    refused: tuple[int, ...] = ()
    #: When the first and last message were stored at the source, ms since the epoch.
    events: tuple[int, int] = (0, 0)
    #: Positions among `runs` that the sending side itself refuses for good, each with the rule as
    #: `CODE: detail`: they get a dead letter before the rest is sent.
    refusals: tuple[tuple[int, str], ...] = ()
    #: Of a replay plan: positions whose message equals others, each with the number of copies that the target
    #: should have (`bridge.replay.copies`); of every other message it should have one.
    copies: tuple[tuple[int, int], ...] = ()
    #: The number of messages that the bridge's filter left out; and that of those of them for which its
    #: condition could not be evaluated. They count with the end of the batch: a part without it has none.
    filtered: int = 0
    not_evaluated: int = 0
    #: The number of messages that the bridge's transformer dropped; counts as `filtered` does.
    dropped: int = 0

    @property
    def count(self) -> int:
        """The number of messages carried."""
        return self.block.count if self.block is not None else 0

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return self.block.whole_size if self.block is not None else 0

    @property
    def window_size(self) -> int:
        """Bytes that windows count: of a large body, which is sent in pieces beside others, a chunk."""
        if self.block is None or self.block.large is None:
            return self.size
        return min(self.size, CHUNK_BYTES)

    def until(self, end: int) -> Batch:
        """The part at positions < `end`, which lies inside ``(from_, upto)``.

        Its checksum is not known: only a source knows the last message covered there.
        """
        kept = run_arithmetic.below(self.runs, end)
        block = self.block.part(0, run_arithmetic.count(kept)) if kept and self.block is not None else None
        return replace(
            self,
            upto=end,
            runs=kept,
            block=block,
            checksum=0,
            refused=tuple(position for position in self.refused if position < end),
            refusals=tuple(refusal for refusal in self.refusals if refusal[0] < end),
            filtered=0,
            not_evaluated=0,
            dropped=0,
        )

    def after(self, next_position: int) -> Batch:
        """The part at positions >= `next_position`, which lies inside ``[from_, upto)``."""
        if next_position <= self.from_:
            return self
        kept = run_arithmetic.from_position(self.runs, next_position)
        block = None
        if kept and self.block is not None:
            block = self.block.part(self.count - run_arithmetic.count(kept), self.count)
        return replace(
            self,
            from_=next_position,
            runs=kept,
            block=block,
            refused=tuple(position for position in self.refused if position >= next_position),
            refusals=tuple(refusal for refusal in self.refusals if refusal[0] >= next_position),
            copies=tuple(one for one in self.copies if one[0] >= next_position),
        )

    def without(self, positions: Collection[int]) -> Batch:
        """The batch with these positions of its messages covered and empty: they have dead letters.

        Returns the batch itself where it has none of them.
        """
        places = list(run_arithmetic.positions(self.runs))
        dropped = [index for index, place in enumerate(places) if place in positions]
        if not dropped or self.block is None:
            return self
        return replace(
            self,
            runs=run_arithmetic.join((place, place) for place in places if place not in positions),
            block=self.block.without(dropped),
            refused=tuple(sorted({*self.refused, *(places[index] for index in dropped)})),
            refusals=tuple(refusal for refusal in self.refusals if refusal[0] not in positions),
        )

    def only(self, indices: Sequence[int], not_evaluated: int = 0) -> Batch:
        """The batch with the messages at these indices, which ascend: the bridge's filter takes no others.

        Their positions are covered and empty, without a refusal. `not_evaluated`: for so many of them the
        condition could not be evaluated.
        """
        if len(indices) == self.count:
            return self
        assert self.block is not None
        kept = set(run_arithmetic.at(self.runs, indices))
        return replace(
            self,
            runs=run_arithmetic.join((place, place) for place in sorted(kept)),
            block=self.block.chosen(indices) if indices else None,
            refusals=tuple(refusal for refusal in self.refusals if refusal[0] in kept),
            filtered=self.filtered + self.count - len(indices),
            not_evaluated=self.not_evaluated + not_evaluated,
        )

    def leaving_out(self, positions: Runs) -> Batch:
        """The batch without its messages at these positions, which are covered and empty: another store has
        them.
        """
        kept = run_arithmetic.without(self.runs, positions)
        if self.block is None or kept == self.runs:
            return self
        indices = [run_arithmetic.index(self.runs, place) for place in run_arithmetic.positions(kept)]
        return replace(
            self,
            runs=kept,
            block=self.block.chosen(indices) if indices else None,
            refusals=tuple(
                refusal for refusal in self.refusals if run_arithmetic.index(kept, refusal[0]) >= 0
            ),
        )

    def transformed(
        self, made: Sequence[Message | None], refusals: Mapping[int, str], *, changed: bool
    ) -> Batch:
        """The batch with these messages in place of its own; None: the bridge's transformer drops it.

        `refusals`: the reasons by position, earlier ones too. The positions of dropped messages are covered
        and empty, without a refusal. `changed`: whether any of the others differs from what was read.
        """
        assert self.block is not None
        kept = [index for index, message in enumerate(made) if message is not None]
        rest = self.only(kept)
        block = rest.block
        if block is not None and changed:
            block = block.holding([message for message in made if message is not None])
        return replace(
            rest,
            block=block,
            refusals=tuple(
                (place, refusals[place]) for place in run_arithmetic.positions(rest.runs) if place in refusals
            ),
            filtered=self.filtered,
            dropped=self.dropped + self.count - len(kept),
        )
