"""Clients that send and readers that acknowledge while nodes die, and what must be true afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fault.rig import PATIENCE_S, Client, FaultyNode
from tests.harness.eventually import LOOK_AGAIN_S, until

TRANSACTION = 20


@dataclass
class Sent:
    """What writers were answered, in the order of sending."""

    #: Body of each message that was answered `stored` or `duplicate`, by writer.
    bodies: dict[str, list[str]] = field(default_factory=dict)
    stored: int = 0
    duplicates: int = 0

    def made(self, made_of: Callable[[str], str | None]) -> dict[str, list[str]]:
        """The bodies that a transformer makes of these, by writer; `made_of` gives None for a dropped one."""
        return {
            name: [made for body in bodies if (made := made_of(body)) is not None]
            for name, bodies in self.bodies.items()
        }


async def send_singles(client: Client, sent: Sent, name: str, count: int) -> None:
    """One POST after the other, each with an ID, so that a retry cannot double it; every tenth sent twice."""
    bodies = sent.bodies.setdefault(name, [])
    for number in range(count):
        body = f"{name}-{number}"
        for repeat in range(1 + (number % 10 == 3)):
            status, answer = await client.ask(
                "POST", "/v1/addresses/orders/messages", data=body.encode(), headers={"Idempotency-Key": body}
            )
            assert status == 200, answer
            if repeat:
                assert answer["verdict"] == "duplicate"
            _count(sent, answer)
        bodies.append(body)


async def send_transactions(client: Client, sent: Sent, name: str, count: int) -> None:
    """Transactions with one ID each."""
    bodies = sent.bodies.setdefault(name, [])
    for number in range(count):
        some = [f"{name}-{number}-{index}" for index in range(TRANSACTION)]
        status, answer = await client.ask(
            "POST",
            "/v1/transactions",
            json={
                "duplicate-id": f"{name}-{number}",
                "messages": [{"address": "orders", "body": body} for body in some],
            },
        )
        assert status == 200, answer
        _count(sent, answer)
        bodies.extend(some)


def _count(sent: Sent, answer: dict[str, Any]) -> None:
    if answer["verdict"] == "stored":
        sent.stored += 1
    else:
        sent.duplicates += 1


@dataclass
class Received:
    """What a reader has acknowledged, by position."""

    by_position: dict[int, str] = field(default_factory=dict)

    def bodies(self) -> list[str]:
        """In the order of the queue."""
        return [self.by_position[position] for position in sorted(self.by_position)]


async def read_until(client: Client, received: Received, wanted: asyncio.Future[int]) -> None:
    """Lease, acknowledge, until as many as `wanted` says have come (once it is known)."""
    queue = "/v1/addresses/orders/queues/q"
    while not (wanted.done() and len(received.by_position) >= wanted.result()):
        status, page = await client.ask("GET", f"{queue}/messages?max=50&wait=200&lease=2000")
        assert status == 200, page
        if page["lease"] is None:
            continue
        status, answer = await client.ask("POST", f"{queue}/acknowledge", json={"lease": page["lease"]})
        assert status in (200, 204, 409), answer
        for message in page["messages"]:
            # A page whose acknowledgement was lost with the node comes again: same place, same message.
            before = received.by_position.setdefault(message["position"], message["body"])
            assert before == message["body"]


async def until_confirmed(edge: Client) -> None:
    """The target has confirmed everything: nothing waits for the bridge any more."""

    async def confirmed() -> bool:
        _, address = await edge.ask("GET", "/v1/addresses/orders")
        return bool(address["bridges"][0]["lag"] == 0)

    await until(confirmed, "everything is confirmed", PATIENCE_S, LOOK_AGAIN_S)


def check_order(sent: Mapping[str, Sequence[str]], received: Received) -> None:
    """Every message of every writer, once, in the order of its sending; nothing else."""
    arrived = received.bodies()
    assert len(arrived) == len(set(arrived)), "doubled"
    for name, bodies in sent.items():
        of_writer = [body for body in arrived if body.startswith(f"{name}-")]
        assert of_writer == bodies
    assert len(arrived) == sum(map(len, sent.values()))


def check_delivery_logs(edge: FaultyNode, hub: FaultyNode, messages: int) -> None:
    """Both sides account for every message once, and agree."""
    stream = None
    entered: list[int] = []
    for line in edge.lines_once():
        if line["side"] == "received" and "verdict" not in line:
            stream = line["stream"]
            entered += _positions(line["runs"])
    sent = covered(edge.lines_once(), "sent")
    got = covered(hub.lines_once(), "received")
    assert len(entered) == len(set(entered)) == messages
    assert stream is not None
    assert sent == got == sorted(entered)


def covered(lines: Sequence[dict[str, Any]], side: str) -> list[int]:
    """Positions that the bridge's lines of one side name, each once."""
    lines = [line for line in lines if line["side"] == side and line["bridge"] == "to-hub"]
    positions = [position for line in lines if "verdict" not in line for position in _positions(line["runs"])]
    assert len(positions) == len(set(positions)), f"{side}: named twice"
    return sorted(positions)


def _positions(runs: Sequence[Sequence[int]]) -> list[int]:
    return [position for first, last in runs for position in range(first, last + 1)]
