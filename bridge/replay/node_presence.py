"""Finds the messages of a plan that a node has, by where each was first stored, and by checked producers'
IDs.

Coordinates name one message, but the bridge's source may have it several times: two bridges may have brought
it there, on purpose. So messages that were first stored elsewhere are counted at the source, and the target
is told how many copies it should have (`Batch.copies`); it counts its own copies as it stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import Final

import msgspec

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Origin
from bridge.messages.origins import disjoint, expanded
from bridge.relay.ports import Stream
from bridge.replay.copies import ONCE, Due, Judged, Key, Keyed, Tally
from bridge.replay.sending import Part, PlanSource, PlanState


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks which of these messages the address has, and how far the stream has been covered."""

    bridge: str
    #: Identity of the stream that they will be sent as.
    stream: str
    #: The address at which they will be stored.
    address: str
    #: The places where they were first stored.
    origins: tuple[Origin, ...] = ()
    #: Their producers' IDs.
    ids: tuple[bytes, ...] = ()


class Present(msgspec.Struct, frozen=True):
    """The answer to a question."""

    #: Store identity of the node.
    store: str
    #: First position of the stream that is not covered; None: it was never seen.
    next: int | None
    #: The question's origins that it has, or parts of them.
    origins: tuple[Origin, ...] = ()
    #: Indices of the IDs that it knows.
    ids: tuple[int, ...] = ()


#: Path at which a node answers over HTTP.
PATH: Final = "/v1/link/held"
#: Asks which messages a store holds.
Asked = Callable[[Question], Awaitable[Present]]
#: The place where a message was first stored: stream and position.
Coordinates = tuple[str, int]


class NodePresence:
    """Implements `bridge.replay.sending.Presence` for a bridge to a node, this one or another."""

    def __init__(self, bridge: str, asked: Asked, source: PlanSource, *, checks_ids: bool) -> None:
        """`checks_ids`: whether the bridge's target looks producers' IDs up."""
        self._bridge = bridge
        self._asked = asked
        self._source = source
        self._checks_ids = checks_ids
        self._tally = Tally()
        #: Counts of the part that was prepared last.
        self._present: Counter[Coordinates] = Counter()
        self._known_ids: frozenset[bytes] = frozenset()
        self._due: Mapping[Coordinates, Due] = {}

    async def plan_state(self, planned: Stream) -> PlanState:
        """Implements `Presence.plan_state`."""
        answer = await self._ask(planned)
        return PlanState(answer.store, answer.next)

    async def prepare(self, stream: Stream, part: Part, deadline_s: float) -> bool:  # noqa: ARG002 - one question
        """Implements `Presence.prepare`; messages that were sent before are in the answer."""
        blocks = [batch.block for batch in part.batches if batch.block is not None]
        origins = disjoint(chain.from_iterable(block.origins for block in blocks))
        ids = [value for block in blocks for _, value in block.ids] if self._checks_ids else []
        relayed = [origin for origin in origins if origin[0] != stream.identity]
        siblings = await self._source.siblings(stream) if relayed else ()
        covered = [(await self._ask(one.stream)).next or 0 for one in siblings]
        answer = await self._ask(stream, tuple(origins), tuple(ids))
        self._tally = Tally()
        self._present = Counter(expanded(answer.origins))
        self._known_ids = frozenset(ids[index] for index in answer.ids)
        least, most = Counter[Coordinates](), Counter[Coordinates]()
        for one, upto in zip(siblings, covered, strict=True):
            for (origin, first, last), position in await self._source.copies(one.stream, relayed):
                for at in range(first, last + 1):
                    most[origin, at] += 1
                    least[origin, at] += position + at - first < upto
        is_whole = all(one.is_whole for one in siblings)
        self._due = {at: Due(least[at], number if is_whole else None) for at, number in most.items()}
        return True

    async def _ask(
        self, stream: Stream, origins: tuple[Origin, ...] = (), ids: tuple[bytes, ...] = ()
    ) -> Present:
        return await self._asked(Question(self._bridge, stream.identity, stream.target_address, origins, ids))

    def judge(self, batch: Batch) -> Judged:
        """Implements `Presence.judge`."""
        by_id = self._tally.judge(
            self._by_id(batch), lambda value: int(value in self._known_ids), lambda _: ONCE
        )
        rest = [one for one in self._by_origin(batch) if one[0] not in by_id.known]
        found = self._tally.judge(rest, self._present_at, self._due_at)
        copies = tuple(
            (position, self._due_at(key).least)
            for position, key in rest
            if key is not None and position not in found.known and self._due_at(key).least > 1
        )
        return Judged(by_id.known | found.known, found.unknown, copies)

    def stored(self, batch: Batch, judged: Judged) -> None:
        """Implements `Presence.stored`."""
        left_out = judged.known.union(judged.unknown)
        keyed = [*self._by_id(batch), *self._by_origin(batch)]
        self._tally.stored(key for position, key in keyed if position not in left_out)

    def _by_id(self, batch: Batch) -> list[Keyed]:
        if batch.block is None or not self._checks_ids:
            return []
        positions = list(run_arithmetic.positions(batch.runs))
        return [(positions[index], value) for index, value in batch.block.ids]

    def _by_origin(self, batch: Batch) -> list[Keyed]:
        if batch.block is None or not batch.block.origins:
            return []
        places = run_arithmetic.positions(batch.runs)
        return list(zip(places, expanded(batch.block.origins), strict=True))

    def _present_at(self, key: Key) -> int:
        assert isinstance(key, tuple)
        return self._present[key]

    def _due_at(self, key: Key) -> Due:
        assert isinstance(key, tuple)
        return self._due.get(key, ONCE)
