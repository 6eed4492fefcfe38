"""Ends that lose messages, as no end should: `lossy-kafka://` and `lossy-ws://` around the real ones.

A package of its own, which tests install beside the product (`tests.harness.lossy`). In a process whose
environment has ``LOSSY_END=orders:3,7-9;invoices:0`` these positions of every stream that goes to the address
or topic are left out, and covered all the same. A loss shows in the delivery log and at the target alone:
`core-bridge reconcile` finds it, `core-bridge replay` mends it. What a plan sends again is not lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bridge.end_kind import (
    AuditSource,
    AuditTarget,
    EndKind,
    EndsOf,
    Lane,
    NodeContext,
    NodeEnds,
    RecordedLanes,
    Side,
    SourceEnd,
    TargetEnd,
)
from bridge.kafka.end import KafkaKind
from bridge.link.end import LinkKind
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.messages.stream_names import planned_stream
from bridge.relay.ownership import AskDivision, Ownership
from bridge.relay.ports import Bounds, Opened, Receipt, Source, Stream, StreamState, Target
from bridge.relay.stays import NO_STAYS, Remembered, Stays
from bridge.replay.sending import PlanSource, Presence
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Connector
from bridge.settings.end_rules import TlsTable, UsedKeys
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding

VARIABLE: Final = "LOSSY_END"
PREFIX: Final = "lossy-"
_RUN: Final = re.compile(r"(?P<first>[0-9]+)(-(?P<last>[0-9]+))?")

Lost = Mapping[str, Runs]


def read(value: str) -> Lost:
    """Positions to lose, by address. Raises: ValueError: the value cannot be read."""
    found: dict[str, Runs] = {}
    for part in filter(None, value.split(";")):
        address, _, listed = part.rpartition(":")
        runs = [_RUN.fullmatch(item) for item in listed.split(",")]
        if not address or None in runs:
            raise ValueError(f"{VARIABLE}: ADDRESS:FIRST-LAST,POSITION;... expected; found {part}")
        pairs = [(int(run["first"]), int(run["last"] or run["first"])) for run in runs if run is not None]
        found[address] = tuple(sorted(pairs))
    return found


def lose(lost: Lost, address: str, batch: Batch) -> Batch:
    """A batch to `address` without the messages that are to be lost; it covers what it did."""
    if address not in lost or batch.block is None or planned_stream(batch.stream) is not None:
        return batch
    places = list(run_arithmetic.positions(batch.runs))
    dropped = {index for index, place in enumerate(places) if run_arithmetic.index(lost[address], place) >= 0}
    if not dropped:
        return batch
    kept = [place for index, place in enumerate(places) if index not in dropped]
    block = batch.block.without(dropped)
    return replace(batch, runs=run_arithmetic.join((place, place) for place in kept), block=block)


class LossyTarget:
    """Hands on what is left of each batch."""

    def __init__(self, target: Target, lost: Lost) -> None:
        self._target = target
        self._lost = lost
        self._addresses: dict[str, str] = {}

    async def open(self, streams: Sequence[Stream]) -> Opened:
        self._addresses.update((stream.identity, stream.target_address) for stream in streams)
        return await self._target.open(streams)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        return await self._target.deliver(
            [lose(self._lost, self._addresses[batch.stream], batch) for batch in batches]
        )

    async def lost(self) -> None:
        await self._target.lost()

    async def close(self) -> None:
        await self._target.close()


class LossySource:
    """Reads what is left of each batch."""

    def __init__(self, source: Source, lost: Lost) -> None:
        self._source = source
        self._lost = lost
        self._addresses: dict[str, str] = {}

    async def streams(self) -> Sequence[Stream]:
        streams = await self._source.streams()
        self._addresses.update((stream.identity, stream.target_address) for stream in streams)
        return streams

    async def remembered(self) -> Mapping[str, Remembered]:
        return await self._source.remembered()

    async def bounds(self) -> Mapping[str, Bounds]:
        return await self._source.bounds()

    async def begin(self, stream: str, at: int, store: str, stays: Stays = NO_STAYS) -> None:
        await self._source.begin(stream, at, store, stays)

    async def open(self, resume: Mapping[str, StreamState], store: str) -> None:
        await self._source.open(resume, store)

    async def read(self) -> Sequence[Batch]:
        return [lose(self._lost, self._addresses[batch.stream], batch) for batch in await self._source.read()]

    def back_off(self, streams: Collection[str]) -> None:
        self._source.back_off(streams)

    async def settled(self, batch: Batch, receipt: Receipt) -> None:
        await self._source.settled(batch, receipt)

    async def close(self) -> None:
        await self._source.close()


class _LossyEnds(NodeEnds):
    """The ends of a kind, each in its wrapper."""

    def __init__(self, ends: NodeEnds) -> None:
        self._ends = ends
        self._lost = read(os.environ.get(VARIABLE, ""))

    def source(self, lane: Lane) -> SourceEnd:
        made = self._ends.source(lane)
        return replace(made, source=LossySource(made.source, self._lost))

    def target(self, lane: Lane) -> TargetEnd:
        made = self._ends.target(lane)
        return replace(made, target=LossyTarget(made.target, self._lost))

    def ownership(self, bridge: Bridge, side: Side) -> Ownership | None:
        return self._ends.ownership(bridge, side)

    def division(self, bridge: Bridge, side: Side) -> AskDivision | None:
        return self._ends.division(bridge, side)

    async def origin(self, connector: str) -> str:
        return await self._ends.origin(connector)

    def plan_source(self, bridge: Bridge) -> PlanSource | None:
        return self._ends.plan_source(bridge)

    def plan_target(
        self, bridge: Bridge, source: PlanSource, *, force: bool
    ) -> tuple[Target, Presence] | None:
        return self._ends.plan_target(bridge, source, force=force)


def _one(connector: Connector) -> Connector:
    """The connector as the real end knows it."""
    return connector.model_copy(update={"url": connector.url.removeprefix(PREFIX)})


def _real(settings: Settings) -> Settings:
    """The same settings with real ends alone."""
    connectors = {name: _one(connector) for name, connector in settings.connectors.items()}
    return settings.model_copy(update={"connectors": connectors})


class _Lossy(EndKind):
    """What the kind behind it says, asked by real URLs."""

    def used_keys(self, connector: Connector | None) -> UsedKeys:
        return super().used_keys(None if connector is None else _one(connector))

    def check_url(self, url: str) -> None:
        super().check_url(url.removeprefix(PREFIX))

    def check_connector(self, path: KeyPath, connector: Connector) -> Iterator[Finding]:
        return super().check_connector(path, _one(connector))

    def tls(self, connector: Connector) -> Sequence[TlsTable]:
        return super().tls(_one(connector))

    def check_bridge(self, path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
        return super().check_bridge(path, bridge, _real(settings))

    def check_bridges(self, settings: Settings) -> Iterator[Finding]:
        return super().check_bridges(_real(settings))

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:
        return _LossyEnds(super().in_process(replace(node, settings=_real(node.settings)), others))

    def audited(self, settings: Settings, connector: str, bridge: Bridge | None = None) -> object:
        return super().audited(_real(settings), connector, bridge)

    def audit_source(self, settings: Settings, connector: str) -> AuditSource | None:
        return super().audit_source(_real(settings), connector)

    def audit_target(self, settings: Settings, connector: str) -> AuditTarget | None:
        return super().audit_target(_real(settings), connector)

    def recorded_lanes(self, settings: Settings, bridge: Bridge) -> RecordedLanes | None:
        return super().recorded_lanes(_real(settings), bridge)


class LossyKafka(_Lossy, KafkaKind):  # type: ignore[misc]
    """`lossy-kafka://`."""


class LossyLink(_Lossy, LinkKind):  # type: ignore[misc]
    """`lossy-ws://`."""


KAFKA: Final = LossyKafka()
LINK: Final = LossyLink()
