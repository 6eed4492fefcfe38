"""Readers in the event loop get what is committed, whatever the writer has decided and not stored."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.errors import JournalUnavailable
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import IntakeCommand
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.views import Intake
from bridge.node.extension import NodeServices
from bridge.settings.clusters import ClusterConnection
from cluster.connections import Connections
from cluster.drain import Drain, DrainState, Phase
from cluster.handover import AnyCall, Ids
from cluster.own_places import OwnPlaces
from cluster.record import Place
from dedup.ring import Key, Ring
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, fail_with, once, sqlite_error
from tests.integration.journal.helpers import (
    QUEUE,
    acknowledgement,
    bodies,
    consume,
    lease,
    opened,
    options,
    send,
    submission,
    transact,
)

IOERR = sqlite3.SQLITE_IOERR_FSYNC
CONNECTION = {"name": "c", "connector-ref": "n0", "static-connectors": ["n1"]}


@asynccontextmanager
async def commit_held(journal: Journal, work: Any, *, fails: bool) -> AsyncIterator[asyncio.Task[Any]]:
    """The work's task, while its COMMIT is under way; it goes through, or fails, after the block."""
    entered, gate = threading.Event(), threading.Event()

    def plan(sql: str) -> tuple[sqlite3.Error, bool] | None:
        if sql != "COMMIT" or gate.is_set():
            return None
        entered.set()
        gate.wait()
        return (sqlite_error(IOERR), False) if fails else None

    fail_with(journal, plan)
    task = asyncio.ensure_future(work)
    try:
        await asyncio.to_thread(entered.wait)
        yield task
    finally:
        gate.set()
        await asyncio.wait([task])


def own_places(journal: Journal, bridges: Mapping[str, Any] | None = None) -> OwnPlaces:
    services = SimpleNamespace(
        journal=journal, settings=SimpleNamespace(bridges=()), bridges=dict(bridges or {})
    )
    connection = ClusterConnection.model_validate(CONNECTION)
    return OwnPlaces(cast(NodeServices, services), Connections([connection]))


@dataclass
class Heir:
    """Takes every call."""

    calls: list[AnyCall] = field(default_factory=list)

    async def __call__(self, _node: str, call: AnyCall) -> str:
        self.calls.append(call)
        return ""

    def ids(self) -> Sequence[bytes]:
        return [value for call in self.calls if isinstance(call, Ids) for value in call.ids]


def drain_of(journal: Journal, heir: Heir) -> Drain:
    return Drain(journal, "n0", tuple, heir, lambda: None)


async def test_a_queue_whose_commit_failed_is_not_announced_to_the_cluster(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        places = own_places(journal)
        await journal.create_queue("orders", "there", "earliest")
        creating = journal.create_queue("orders", "never", "earliest")
        async with commit_held(journal, creating, fails=True) as made:
            assert [place.queue for place in places.read()] == ["there"]
        with pytest.raises(JournalUnavailable):
            made.result()
        assert [place.queue for place in places.read()] == ["there"]
        await caught_up(journal)
        assert [place.queue for place in places.read()] == ["there"]


async def test_a_queue_whose_commit_was_in_doubt_and_stored_is_announced(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        places = own_places(journal)
        await journal.create_queue("orders", "there", "earliest")
        places.read()
        fail_with(journal, once("COMMIT", IOERR, after=True))
        with pytest.raises(JournalUnavailable):
            await journal.create_queue("orders", "too", "earliest")
        await caught_up(journal)
        assert [place.queue for place in places.read()] == ["there", "too"]


async def test_a_reader_that_waits_gets_a_message_whose_commit_was_in_doubt_and_stored(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        waiting = asyncio.create_task(
            journal.lease("orders", QUEUE, most=1, wait_ms=60_000, lease_ms=1_000, most_bytes=1_000)
        )
        await until(lambda: journal.presence.idle_ms("orders", QUEUE) == 0, "it waits")
        await caught_up(journal)  # its command has been answered
        fail_with(journal, once("COMMIT", IOERR, after=True))
        with pytest.raises(JournalUnavailable):
            await send(journal, "1", "a")
        async with asyncio.timeout(10):
            assert bodies((await waiting).messages) == ["1"]


async def test_places_are_made_again_only_where_one_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node looks at its up to 10,000 queues every 100 ms."""
    async with opened(tmp_path) as journal:
        places = own_places(journal)
        await journal.create_queue("orders", "a", "earliest")
        await journal.create_queue("orders", "b", "earliest")
        first = places.read()
        await send(journal, "1", "x")
        monkeypatch.setattr("cluster.own_places.Place", None)  # none can be made
        assert places.read() is first
        monkeypatch.undo()
        await lease(journal, queue="b")
        assert places.read() == (Place("orders", "a"), Place("orders", "b", 1))
        await journal.create_queue("orders", "a", "earliest", "colour = 'red'")
        assert [place.filter for place in places.read()] == ["colour = 'red'", ""]
        await journal.delete_queue("orders", "b")
        assert [place.queue for place in places.read()] == ["a"]


async def test_freeze_waits_for_a_lease_whose_acknowledgement_is_not_committed(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "1")
        page = await lease(journal)
        drain, state = drain_of(journal, Heir()), DrainState("drain", "heir", "n1", phase=Phase.FREEZE)
        await journal.submit(IntakeCommand, intake=Intake.CLOSED)
        settling = journal.acknowledge(acknowledgement(page))
        async with commit_held(journal, settling, fails=True):
            assert not await drain._freeze(state), "the lease is in the file"
        assert not await drain._freeze(state), "the acknowledgement was never committed"
        await caught_up(journal)
        await journal.acknowledge(acknowledgement(page))
        assert await drain._freeze(state)


async def test_a_drain_hands_over_the_ids_that_are_committed_while_others_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is between the two steps in which more IDs than fit enter the cache."""
    entered, gate = threading.Event(), threading.Event()
    take = Ring.take

    def held(ring: Ring, keys: Sequence[Key], fresh: set[Key], overwritten: set[Key] | None = None) -> None:
        take(ring, keys, fresh, overwritten)
        entered.set()
        gate.wait()

    async with opened(options(tmp_path, AddressPolicy(id_cache_size=2))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        monkeypatch.setattr(Ring, "take", held)
        coming = asyncio.create_task(
            transact(journal, *(submission(value, value) for value in ("a", "b", "c", "d")))
        )
        heir = Heir()
        try:
            await asyncio.to_thread(entered.wait)
            state = DrainState("drain", "heir", "n1", phase=Phase.STATE)
            handing = asyncio.create_task(drain_of(journal, heir)._hand_state_over(state))
            await until(lambda: handing.done() or not journal._writer._inbox.empty(), "it reads the IDs")
        finally:
            gate.set()
        await coming
        assert await handing
    assert heir.ids() == [b"c", b"d"]


@pytest.mark.parametrize("persisted", [True, False])
async def test_a_drain_hands_over_ids_whether_they_are_in_the_file_or_not(
    tmp_path: Path, persisted: bool
) -> None:
    async with opened(options(tmp_path, persist_id_cache=persisted)) as journal:
        for value in ("a", "b"):
            await send(journal, value, value)
        heir = Heir()
        assert await drain_of(journal, heir)._hand_state_over(DrainState("drain", "heir", "n1"))
        assert heir.ids() == [b"a", b"b"]


async def test_a_caller_that_is_answered_reads_its_own_writes(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        assert journal.views.queue("orders", QUEUE) is not None
        await send(journal, "1", "a")
        view = journal.views.address("orders")
        assert view is not None
        assert (view.messages, view.ids) == (1, 1)
        assert await consume(journal) == ["1"]
        settled = journal.views.queue("orders", QUEUE)
        assert settled is not None
        assert settled.next == view.next
        await journal.clear_id_cache("orders")
        await journal.resize_id_cache("orders", 7)
        after = journal.views.address("orders")
        assert after is not None
        assert (after.ids, after.id_capacity) == (0, 7)
        await journal.delete_address("orders")
        assert journal.views.address("orders") is None
        assert journal.views.queues("orders") == []
