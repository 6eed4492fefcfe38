"""SIGKILL of both nodes while a bridge and a reader share the queue of an ANYCAST address.

Each message goes to the bridge or to the reader, once. A message whose acknowledgement had no answer may be
with either: the answer died with the node. At the hub a queue with a filter stands beside one without. Beside
them queues and addresses come with their readers and go by themselves.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fault.rig import PATIENCE_S, Client, rig
from tests.harness.eventually import LOOK_AGAIN_S, until

TRANSACTIONS = 60
_RED = "colour = 'red'"
_HUB = f"""
[addresses.orders]
queues = ["all", {{ name = "reds", filter = "{_RED}" }}]
"""
_POINTS = ("journal.before-commit", "journal.after-commit", "source.before-settle", "link.before-batch")


_GOING = """
[address-settings."temp.#"]
auto-create-queues = true
auto-delete-queues = true
auto-delete-queues-delay = "1ms"
auto-delete-addresses = true
auto-delete-addresses-delay = "1ms"
"""
#: Addresses that go, and how often messages come to each.
TEMPORARY, TIMES = ("temp.a", "temp.b"), 2


def _edge(condition: str) -> str:
    chosen = f'filter = "{condition}"\n' if condition else ""
    return f'{chosen}[addresses.orders]\nrouting-type = "ANYCAST"\n{_GOING}'


@dataclass
class Seen:
    """What was sent and read; bodies name messages."""

    sent: dict[str, str] = field(default_factory=dict)
    #: Acknowledged, by position; and those whose acknowledgement had no answer that says so.
    acknowledged: dict[int, str] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)


async def send(client: Client, seen: Seen) -> None:
    """Transactions of three messages, two of them red."""
    for number in range(TRANSACTIONS):
        some = {f"{number}-{index}": "blue" if index == 1 else "red" for index in range(3)}
        messages = [{"address": "orders", "body": b, "headers": {"colour": c}} for b, c in some.items()]
        wanted = {"duplicate-id": f"t-{number}", "messages": messages}
        status, answer = await client.ask("POST", "/v1/transactions", json=wanted)
        assert status == 200, answer
        seen.sent |= some


async def read(client: Client, seen: Seen, queue: str, ending: asyncio.Event) -> None:
    """Lease and acknowledge, until there is nothing left."""
    path = f"/v1/addresses/orders/queues/{queue}"
    while True:
        over = ending.is_set()
        _, page = await client.ask("GET", f"{path}/messages?max=3&wait=100&lease=1000")
        assert "lease" in page, page
        if page["lease"] is None:
            if over and await waiting(client, queue) == 0:
                return
            continue
        status, _ = await client.ask("POST", f"{path}/acknowledge", json={"lease": page["lease"]})
        for message in page["messages"]:
            if status == 204:
                assert seen.acknowledged.setdefault(message["position"], message["body"]) == message["body"]
            else:
                seen.uncertain.add(message["body"])


async def take(client: Client, seen: Seen, address: str, queue: str, most: int) -> bool:
    """Lease and acknowledge once, as a reader that makes the queue where it is not there; whether there was
    a message.
    """
    path = f"/v1/addresses/{address}/queues/{queue}"
    _, page = await client.ask("GET", f"{path}/messages?max={most}&wait=50&lease=1000")
    if page["lease"] is None:
        return False
    status, _ = await client.ask("POST", f"{path}/acknowledge", json={"lease": page["lease"]})
    for message in page["messages"]:
        if status == 204:
            assert seen.acknowledged.setdefault(message["position"], message["body"]) == message["body"]
        else:
            seen.uncertain.add(message["body"])
    return True


async def come_and_go(client: Client) -> None:
    """Messages for a reader whose queue goes in between, while another one keeps some of them stored.

    The reader gets each once. In the end the queues, the addresses and their IDs are gone.
    """
    readers = {address: (Seen(), Seen()) for address in TEMPORARY}
    for time in range(TIMES):
        for address, (fast, slow) in readers.items():
            bodies = [f"{address}-{time}-{index}" for index in range(3)]
            for body in bodies:
                how = {"data": body, "headers": {"Duplicate-Id": body}}
                status, _ = await client.ask("POST", f"/v1/addresses/{address}/messages", **how)
                assert status == 200
                fast.sent[body] = "red"
            await take(client, fast, address, "fast", 2)  # before the other: what nobody needs is trimmed
            await take(client, slow, address, "slow", 1)
            await take_all(client, fast, address, "fast")
            assert set(fast.sent) - set(fast.acknowledged.values()) <= fast.uncertain, "lost"
        for address in TEMPORARY:
            await gone(client, address, "fast")
    for address, (fast, slow) in readers.items():
        for queue, seen in (("fast", fast), ("slow", slow)):
            await take_all(client, seen, address, queue)
            done = list(seen.acknowledged.values())
            assert len(done) == len(set(done)), f"{address}::{queue} brought some again"
        await gone(client, address)


async def take_all(client: Client, seen: Seen, address: str, queue: str) -> None:
    """Take until the queue holds nothing."""
    while await take(client, seen, address, queue, 10) or await lag(client, address, queue):
        pass


async def gone(client: Client, address: str, queue: str = "") -> None:
    """Return once the queue, or without one the address, is not there."""

    async def it_is() -> bool:
        return await is_gone(client, address, queue)

    await until(it_is, f"{address} {queue} goes", PATIENCE_S, LOOK_AGAIN_S)


async def is_gone(client: Client, address: str, queue: str = "") -> bool:
    """Whether the queue, or without one the address, is not there."""
    status, described = await client.ask("GET", f"/v1/addresses/{address}")
    return status == 404 or (queue != "" and queue not in [one["name"] for one in described["queues"]])


async def lag(client: Client, address: str, queue: str) -> int:
    """Messages that the queue holds; 0 where it is gone."""
    status, described = await client.ask("GET", f"/v1/addresses/{address}")
    found = [] if status == 404 else [one["lag"] for one in described["queues"] if one["name"] == queue]
    return sum(found)


async def waiting(client: Client, queue: str) -> int:
    """Messages that the queue holds."""
    _, described = await client.ask("GET", "/v1/addresses/orders")
    return int(next(one["lag"] for one in described["queues"] if one["name"] == queue))


async def run_round(directory: Path, seed: int, condition: str) -> None:
    """One round: both nodes die, at a named point and at random."""
    print(f"seed {seed} filter {condition or '-'}")
    point = _POINTS[seed % len(_POINTS)]
    async with rig(directory, seed, edge=_edge(condition), hub=_HUB) as it, asyncio.timeout(PATIENCE_S):
        it.edge.spawn(CORE_BRIDGE_CRASH_AT=f"{point}:{1 + seed % 7}")
        it.hub.spawn()
        edge, hub = it.client(it.edge), it.client(it.hub)
        seen, ending = Seen(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(node.keep_alive()) for node in (it.edge, it.hub)]
            chaos = group.create_task(it.fail_at_random())
            reading = group.create_task(read(edge, seen, "orders", ending))
            going = group.create_task(come_and_go(edge))
            await send(edge, seen)
            chaos.cancel()
            it.proxy.heal()
            ending.set()
            await reading
            await going
            await until(
                lambda: relayed(edge), "the bridge has relayed what it took", PATIENCE_S, LOOK_AGAIN_S
            )
            for keeper in keepers:
                keeper.cancel()
        at_hub, reds, done = Seen(), Seen(), asyncio.Event()
        done.set()
        await read(hub, at_hub, "all", done)
        await read(hub, reds, "reds", done)
        for node in (it.edge, it.hub):
            assert await node.stop_cleanly(it.client(node)) == 0, node.log_tail()
    check(seen, [at_hub.acknowledged[place] for place in sorted(at_hub.acknowledged)], condition)
    assert sorted(reds.acknowledged.values()) == sorted(
        body for body in at_hub.acknowledged.values() if seen.sent[body] == "red"
    )


async def relayed(edge: Client) -> bool:
    """Whether the bridge's own log is empty."""
    status, log = await edge.ask("GET", "/v1/addresses/$bridge.to-hub%2Forders")
    return status == 404 or all(bridge["lag"] == 0 for bridge in log["bridges"])


def check(seen: Seen, arrived: list[str], condition: str) -> None:
    """Each message once: with the reader, or at the hub."""
    done = list(seen.acknowledged.values())
    assert len(done) == len(set(done)), "acknowledged twice"
    assert len(arrived) == len(set(arrived)), "doubled at the hub"
    assert not set(done) & set(arrived), "with the reader and at the hub"
    assert set(seen.sent) - set(done) - set(arrived) <= seen.uncertain, "lost"
    if condition:
        assert {seen.sent[body] for body in arrived} <= {"red"}


@pytest.mark.parametrize(("seed", "condition"), [(0, _RED), (1, "")])
async def test_each_message_goes_to_the_reader_or_to_the_bridge(
    tmp_path: Path, seed: int, condition: str
) -> None:
    await run_round(tmp_path, seed, condition)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(int(os.environ.get("CRASH_ROUNDS", "200")) // 2))
async def test_long_run(tmp_path: Path, seed: int) -> None:
    """`make test-crash`."""
    await run_round(tmp_path, 100 + seed, _RED if seed % 2 else "")
