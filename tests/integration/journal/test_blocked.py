"""Commands that wait for room at a full address: which of them are decided again, and in which order."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import Stopping
from bridge.journal.journal import Journal
from bridge.journal.rules import dispatch
from bridge.journal.rules.commands import IntakeCommand, SettleCommand, WriteCommand
from bridge.journal.values.options import AddressPolicy, BridgeQueue, JournalOptions
from bridge.journal.values.store import Committed
from bridge.journal.values.views import Intake
from bridge.journal.writer import blocked_commands, writer
from bridge.messages.batch import Batch
from tests.harness.eventually import until
from tests.integration.journal.helpers import (
    QUEUE,
    acknowledgement,
    bodies,
    browsed,
    lease,
    opened,
    options,
    policies,
    send,
)

SENDERS = 30


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Decisions by kind of command. Room is looked for only where there is a sign of some."""
    monkeypatch.setattr(blocked_commands, "RETRY_MS", 3_600_000)
    counted: Counter[str] = Counter()
    decide = dispatch.decide

    def count(group: Any, connection: Any, command: WriteCommand) -> None:
        counted[type(command).__name__] += 1
        decide(group, connection, command)

    monkeypatch.setattr(writer, "decide", count)
    return counted


def given(directory: Path) -> JournalOptions:
    """`orders` holds some ten messages; a bridge reads `others`."""
    bridge = BridgeQueue("b", ["others"], lambda name: name == "others")
    small = policies(AddressPolicy(), orders=AddressPolicy(max_size_bytes=2_000))
    return options(
        directory, small, addresses={"orders": (QUEUE,)}, bridges=[bridge], call_timeout_ms=3_600_000
    )


async def filled(journal: Journal) -> int:
    """Messages in `orders` after it has been filled."""
    number = 0
    while "orders" not in journal.full_addresses():
        await send(journal, f"before {number}")
        number += 1
    return number


async def held(journal: Journal, number: int) -> list[asyncio.Task[Committed]]:
    """Sends that wait, each handed over after the one before."""
    waiting = []
    for index in range(number):
        waiting.append(asyncio.create_task(send(journal, f"{index:03}")))
        await until(lambda: len(journal._writer._blocked) == len(waiting), "it waits")
    return waiting


async def test_settlements_that_make_no_room_have_nothing_decided_again(
    tmp_path: Path, decided: Counter[str]
) -> None:
    async with opened(given(tmp_path)) as journal:
        for number in range(20):
            await send(journal, str(number), address="others")
        await filled(journal)
        waiting = await held(journal, SENDERS)
        decided.clear()
        stream = f"journal:{journal.identity.incarnation}:others:0"
        for upto in range(1, 21):
            await journal.submit(
                SettleCommand, bridge="b", address="others", target="t", batch=Batch(stream, upto - 1, upto),
                store="s", committed=0, duplicates=0, recovered=False,
            )  # fmt: skip
        assert decided == {"SettleCommand": 20}
        for one in waiting:
            one.cancel()


async def test_room_for_one_has_one_decided_again_and_they_come_in_order(
    tmp_path: Path, decided: Counter[str]
) -> None:
    """As many decisions as there are senders, not as many for each message that is read."""
    async with opened(given(tmp_path)) as journal:
        before = await filled(journal)
        waiting = await held(journal, SENDERS)
        decided.clear()
        found: list[str] = []
        while len(found) < before + SENDERS:
            page = await lease(journal, most=1, wait_ms=10_000)
            found += bodies(page.messages)
            await journal.acknowledge(acknowledgement(page))
        assert found[before:] == [f"{index:03}" for index in range(SENDERS)]
        assert all(one.stored for one in await asyncio.gather(*waiting))
        assert decided["CommitCommand"] <= 3 * SENDERS


async def test_what_comes_later_waits_behind_those_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where there is room for it: fewer are decided at a time than there is room for."""
    monkeypatch.setattr(blocked_commands, "RETRY_MS", 3_600_000)
    monkeypatch.setattr(blocked_commands, "GROUP_COMMANDS", 1)
    async with opened(given(tmp_path)) as journal:
        await filled(journal)
        waiting = await held(journal, 5)
        await journal.acknowledge(acknowledgement(await lease(journal)))
        waiting.append(asyncio.create_task(send(journal, "late")))
        await asyncio.gather(*waiting)
        found = await browsed(journal)
        assert found[-6:] == ["000", "001", "002", "003", "004", "late"]


async def test_who_waits_learns_at_once_that_the_node_takes_no_more(
    tmp_path: Path, decided: Counter[str]
) -> None:
    async with opened(given(tmp_path)) as journal:
        await filled(journal)
        waiting = await held(journal, 3)
        await journal.submit(IntakeCommand, intake=Intake.NO_CLIENTS)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in answers] == [Stopping] * 3
        assert decided["IntakeCommand"] == 1
