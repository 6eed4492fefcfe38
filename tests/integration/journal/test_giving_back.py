"""Messages that a bridge has taken out of shared queues, given back when the bridge is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from bridge.errors import JournalUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.dead_letters import DeadLetterService
from bridge.journal.giving_back import GivingBack, InDoubt, read_taken
from bridge.journal.journal import Journal
from bridge.journal.rules import moves
from bridge.journal.shared_queues import SharedQueues
from bridge.journal.source import JournalSource
from bridge.journal.values.options import (
    AddressPolicy,
    BridgeQueue,
    BridgeSelection,
    JournalOptions,
    SharedNames,
)
from bridge.messages.addresses import QueueName
from bridge.messages.stream_names import own_log
from bridge.relay.ports import Receipt, StreamState
from dedup.verdict import Verdict
from tests.integration.journal.failing import Plan, caught_up, fail_with, file, memory, once
from tests.integration.journal.helpers import (
    QUEUE,
    browsed,
    check_file,
    consume,
    opened,
    policies,
    send_all,
)

BRIDGE: Final = "to-hub"
LOG: Final = own_log(BRIDGE, "orders")
LETTERS: Final = "dead-letters"
NAMES: Final = SharedNames([QueueName("orders", QUEUE), QueueName("jobs", "jobs")])


def never(_address: str) -> bool:
    return False


def options(directory: Path, *, running: bool = False) -> JournalOptions:
    """An address with two queues, of which the bridge takes what is in one, and an ANYCAST address."""
    return JournalOptions(
        directory,
        policy=policies(AddressPolicy(), jobs=AddressPolicy(routing_type="ANYCAST")),
        addresses={"orders": [QUEUE, "audit"], "jobs": []},
        bridges=[BridgeQueue(BRIDGE, [], never, shared=NAMES)] if running else [],
    )


async def take(directory: Path, sent: Sequence[str] = "abcdefgh", confirmed: int = 0) -> None:
    """Send messages; the bridge takes them, and the target confirms the first of them."""
    async with opened(options(directory, running=True)) as journal:
        await send_all(journal, sent)
        selection = BridgeSelection(BRIDGE, never, str, NAMES)
        shared = SharedQueues(journal, selection, 1 << 30)
        while await shared.take():
            pass
        source = JournalSource(journal, selection, Cutter(1, 1, stamp=True), target_name="hub", shared=shared)
        await source.open({s.identity: StreamState(None) for s in await source.streams()}, "hub:0")
        for _ in range(confirmed):
            (batch,) = await source.read()
            await source.settled(batch, Receipt(batch.stream, Verdict.STORED, batch.upto))
        await source.close()


async def give_back(journal: Journal, in_doubt: InDoubt, log: str = LOG) -> None:
    await GivingBack(journal, BRIDGE, log, in_doubt).run()


async def replayed(journal: Journal) -> int:
    return len((await DeadLetterService(journal, [LETTERS], {}).replay(None)).replayed)


def log_names(journal: Journal) -> list[str]:
    return [address.name for address in journal.views.addresses if address.name.startswith("$")]


async def test_what_the_target_has_not_confirmed_goes_back_to_its_queue_alone(tmp_path: Path) -> None:
    await take(tmp_path, confirmed=3)
    async with opened(options(tmp_path)) as journal:
        assert await journal.look(read_taken, BRIDGE, LOG) == {QueueName("orders", QUEUE): 5}
        await give_back(journal, "requeue")
        assert await consume(journal) == list("defgh")
        assert await consume(journal, queue="audit") == list("abcdefgh"), "another queue has its own"
        assert log_names(journal) == []
        assert memory(journal) == file(journal)
    check_file(tmp_path)


async def test_what_may_be_delivered_becomes_dead_letters_that_a_replay_puts_into_its_queue(
    tmp_path: Path,
) -> None:
    await take(tmp_path, confirmed=3)
    async with opened(options(tmp_path)) as journal:
        await give_back(journal, "dead-letter")
        assert await consume(journal) == []
        found = await DeadLetterService(journal, [LETTERS], {}).list()
        assert [(one.bridge, one.address, one.reason.partition(":")[0]) for one in found] == [
            (BRIDGE, "orders", "IN_DOUBT")
        ] * 5
        assert await replayed(journal) == 5
        assert await consume(journal) == list("defgh")
        assert await consume(journal, queue="audit") == list("abcdefgh")
    check_file(tmp_path)


async def test_what_came_from_a_queue_that_is_gone_becomes_dead_letters(tmp_path: Path) -> None:
    await take(tmp_path)
    async with opened(options(tmp_path)) as journal:
        await journal.delete_queue("orders", QUEUE)
        await give_back(journal, "requeue")
        found = await DeadLetterService(journal, [LETTERS], {}).list()
        assert {one.reason for one in found} == {"QUEUE_GONE: there is no queue orders::q any more"}
        assert await replayed(journal) == 0
        await journal.create_queue("orders", QUEUE, "latest")
        assert await replayed(journal) == 8
        assert await consume(journal) == list("abcdefgh")


async def test_a_letter_that_does_not_fit_has_the_coordinates_of_its_message(tmp_path: Path) -> None:
    await take(tmp_path, ["x" * 2000])
    small = policies(AddressPolicy(), **{LETTERS: AddressPolicy(max_size_bytes=1000)})
    async with opened(replace(options(tmp_path), policy=small)) as journal:
        await give_back(journal, "dead-letter")
        (body,) = await browsed(journal, LETTERS)
        assert body.startswith('{"bridge":"to-hub","stream":"journal:')


async def test_the_queue_of_an_anycast_address_gets_its_own_back(tmp_path: Path) -> None:
    async with opened(options(tmp_path, running=True)) as journal:
        await send_all(journal, "ab", address="jobs")
        shared = SharedQueues(journal, BridgeSelection(BRIDGE, never, str, NAMES), 1 << 30)
        await shared.take()
    log = own_log(BRIDGE, "jobs")
    async with opened(options(tmp_path)) as journal:
        assert await journal.look(read_taken, BRIDGE, log) == {QueueName("jobs", "jobs"): 2}
        await give_back(journal, "requeue", log)
        assert await consume(journal, "jobs", "jobs") == ["a", "b"]
        jobs = journal.views.queue("jobs", "jobs")
        assert jobs is not None
        assert jobs.messages is None, "it needs no count"


def commit_fails(number: int, *, after: bool) -> Plan:
    """The COMMIT behind this number of others fails."""
    plan = once("COMMIT", sqlite3.SQLITE_IOERR, after=after)
    commits = count()
    return lambda sql: plan(sql) if not sql.startswith("COMMIT") or next(commits) >= number else None


@pytest.mark.parametrize("in_doubt", ["requeue", "dead-letter"])
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("number", range(5))
async def test_cut_short_at_a_commit_it_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, stored: bool, in_doubt: InDoubt
) -> None:
    """Four moves of two messages each, and the deletion of the log."""
    await take(tmp_path)
    monkeypatch.setattr(moves, "MOVE_MESSAGES", 2)
    async with opened(options(tmp_path)) as journal:
        fail_with(journal, commit_fails(number, after=stored))
        with pytest.raises(JournalUnavailable):
            await give_back(journal, in_doubt)
        await caught_up(journal)
    async with opened(options(tmp_path)) as journal:
        if LOG in log_names(journal):
            await give_back(journal, in_doubt)
        if in_doubt == "dead-letter":
            assert await replayed(journal) == 8
        assert await consume(journal) == list("abcdefgh")
        assert log_names(journal) == []
    check_file(tmp_path)
