"""The operations listener over a node that a test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from bridge.errors import Conflict, NotFound
from bridge.http.operations import Operations
from bridge.journal.dead_letters import Letter, Replayed
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from tests.fakes.http_client import Client, http_client
from tests.fakes.store import MemoryStore


class FakeControl:
    def __init__(self) -> None:
        self.store: MemoryStore | None = MemoryStore()
        self.letters: Any = None
        self.id_cache_persisted = True
        self.reasons: list[str] = []
        self.told: list[tuple[str, str]] = []

    def ready(self) -> tuple[bool, Sequence[str], Mapping[str, str]]:
        return not self.reasons, self.reasons, {"orders-to-hub": "RUNNING"}

    async def status(self) -> Mapping[str, Any]:
        return {"node": "edge", "bridges": []}

    async def bridge(self, bridge: str) -> Mapping[str, Any]:
        if bridge == "none":
            raise NotFound("no such bridge", "bridge", found=bridge)
        return {"name": bridge, "partitions": []}

    async def metrics_text(self) -> bytes:
        return b"core_bridge_lag_messages 7\n"

    async def start(self, bridge: str) -> str:
        return self._tell("start", bridge)

    async def stop(self, bridge: str) -> str:
        return self._tell("stop", bridge)

    async def reload(self) -> dict[str, list[str]]:
        self.told.append(("reload", ""))
        return {"added": ["orders"]}

    async def pause(self, bridge: str) -> str:
        return self._tell("pause", bridge)

    async def resume(self, bridge: str) -> str:
        return self._tell("resume", bridge)

    async def failback(self, bridge: str) -> str:
        return self._tell("failback", bridge)

    def _tell(self, verb: str, bridge: str) -> str:
        if bridge == "none":
            raise NotFound("no such bridge", "bridge", found=bridge)
        if bridge == "busy":
            raise Conflict("a PAUSED bridge cannot be paused", "state", found="PAUSED")
        self.told.append((verb, bridge))
        return "STOPPED"


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
async def client(control: FakeControl) -> AsyncIterator[Client]:
    operations = Operations(control, url="http://127.0.0.1:0")
    bound = await operations.start()
    async with http_client(str(bound)) as calling:
        yield calling
    await operations.stop()


async def test_ping_answers_before_the_journal_is_open(client: Client, control: FakeControl) -> None:
    control.store = None
    assert (await client.call("GET", "/ping")).status == 200
    assert (await client.call("HEAD", "/ping")).status == 200
    reply = await client.call("GET", "/v1/addresses/orders/id-cache")
    assert reply.problem == (503, "JOURNAL_UNAVAILABLE")


async def test_ready_says_why_not(client: Client, control: FakeControl) -> None:
    reply = await client.call("GET", "/ready")
    assert reply.status == 200
    assert reply.value == {"ready": True, "reasons": [], "bridges": {"orders-to-hub": "RUNNING"}}
    control.reasons = ["the journal is not open"]
    reply = await client.call("GET", "/ready")
    assert reply.status == 503
    assert (reply.value["ready"], reply.value["reasons"]) == (False, ["the journal is not open"])


async def test_one_bridge_is_shown_by_its_name(client: Client) -> None:
    assert (await client.call("GET", "/v1/bridges/eu-to-us")).value == {"name": "eu-to-us", "partitions": []}
    assert (await client.call("GET", "/v1/bridges/none")).problem == (404, "NOT_FOUND")


async def test_metrics_have_prometheus_type(client: Client) -> None:
    reply = await client.call("GET", "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert reply.content == b"core_bridge_lag_messages 7\n"


async def test_status_is_shown_as_it_is(client: Client) -> None:
    assert (await client.call("GET", "/v1/status")).value == {"node": "edge", "bridges": []}


@pytest.mark.parametrize("verb", ["start", "stop", "pause", "resume", "failback"])
async def test_a_bridge_is_told_by_its_name(client: Client, control: FakeControl, verb: str) -> None:
    reply = await client.call("POST", f"/v1/bridges/orders%20to%2Fhub/{verb}")
    assert reply.value == {"bridge": "orders to/hub", "state": "STOPPED"}
    assert control.told == [(verb, "orders to/hub")]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
async def test_no_request_makes_or_removes_a_bridge(
    client: Client, control: FakeControl, method: str
) -> None:
    keys = {"queue-name": "orders", "static-connectors": ["hub"], "transformer": "subprocess:Popen"}
    assert (await client.call(method, "/v1/bridges/x", json=keys)).problem == (405, "METHOD_NOT_ALLOWED")
    assert control.told == []


async def test_a_bridge_that_cannot_be_told(client: Client) -> None:
    assert (await client.call("POST", "/v1/bridges/none/stop")).problem == (404, "NOT_FOUND")
    assert (await client.call("POST", "/v1/bridges/busy/pause")).problem == (409, "CONFLICT")
    assert (await client.call("POST", "/v1/bridges/a/drop")).problem == (404, "NOT_FOUND")
    assert (await client.call("GET", "/v1/bridges/a/stop")).problem == (405, "METHOD_NOT_ALLOWED")


async def test_the_id_cache_is_shown_resized_and_cleared(client: Client, control: FakeControl) -> None:
    """D55: entries, not capacity; D18: shrinking says how many were dropped."""
    assert control.store is not None
    for number in range(5):
        submission = Sent.of("orders", Message(b""), b"%d" % number)
        await control.store.commit(Transaction((submission,), plain=True))
    path = "/v1/addresses/orders/id-cache"
    shown = {"entries": 5, "capacity": 20_000, "persisted": True}
    assert (await client.call("GET", path)).value == shown
    assert (await client.call("PUT", path, json={"size": 3})).value == {"size": 3, "dropped": 2}
    assert (await client.call("DELETE", path)).value == {"removed": 3}
    assert (await client.call("GET", path)).value == {"entries": 0, "capacity": 3, "persisted": True}
    for wrong in ({"size": -1}, {"size": "3"}, {}):
        assert (await client.call("PUT", path, json=wrong)).problem == (400, "MALFORMED")
    for method in ("GET", "DELETE"):
        reply = await client.call(method, "/v1/addresses/none/id-cache")
        assert reply.problem == (404, "ADDRESS_NOT_FOUND")
    assert (await client.call("DELETE", "/v1/addresses/orders")).status == 204
    assert (await client.call("DELETE", "/v1/addresses/orders")).problem == (404, "ADDRESS_NOT_FOUND")


async def test_an_address_that_a_bridge_reads_stays(client: Client, control: FakeControl) -> None:
    assert control.store is not None
    await control.store.create_queue("orders", "q", "earliest")
    control.store.fails_with = Conflict("a bridge reads it")
    assert (await client.call("DELETE", "/v1/addresses/orders")).problem == (409, "CONFLICT")


class Service:
    """Dead letters that a test makes up."""

    def __init__(self) -> None:
        self.listed: list[tuple[int, int]] = []
        self.replayed: list[Sequence[int] | None] = []

    async def list(self, *, after: int, most: int) -> Sequence[Letter]:
        self.listed.append((after, most))
        return [
            Letter(7, "dead-letters", "to-hub", "orders", "journal:i:orders:0", 3, "WHY: so", 12, b"id-1"),
            Letter(9, "dead-letters", "to-hub", "orders", "journal:i:orders:0", 4, "WHY: so", 0, b"\xff"),
        ]

    async def replay(self, positions: Sequence[int] | None) -> Replayed:
        self.replayed.append(positions)
        return Replayed([7], [(9, "gone")])


async def test_dead_letters_are_listed_a_page_at_a_time(client: Client, control: FakeControl) -> None:
    assert (await client.call("GET", "/v1/dead-letters")).problem == (503, "JOURNAL_UNAVAILABLE")
    control.letters = service = Service()
    first, second = (await client.call("GET", "/v1/dead-letters?after=5&max=2")).value["dead-letters"]
    assert first == {
        "position": 7,
        "dead-letter-address": "dead-letters",
        "bridge": "to-hub",
        "address": "orders",
        "stream": "journal:i:orders:0",
        "source-position": 3,
        "reason": "WHY: so",
        "size": 12,
        "duplicate-id": "id-1",
    }
    assert second["duplicate-id"] == {"base64": "/w=="}
    await client.call("GET", "/v1/dead-letters")
    assert service.listed == [(5, 2), (-1, 100)]
    for wrong in ("max=0", "max=1001", "after=-2", "since=1"):
        assert (await client.call("GET", f"/v1/dead-letters?{wrong}")).problem == (400, "MALFORMED")


async def test_dead_letters_are_sent_again_by_position_or_all(client: Client, control: FakeControl) -> None:
    path = "/v1/dead-letters/replay"
    assert (await client.call("POST", path, json={"positions": "all"})).problem[0] == 503
    control.letters = service = Service()
    answered = {"replayed": [7], "skipped": [{"position": 9, "reason": "gone"}]}
    assert (await client.call("POST", path, json={"positions": [7, 9]})).value == answered
    assert (await client.call("POST", path, json={"positions": "all"})).value == answered
    assert service.replayed == [[7, 9], None]
    for wrong in ({}, {"positions": "some"}, {"positions": 7}, {"positions": [-1]}, {"positions": ["7"]}):
        assert (await client.call("POST", path, json=wrong)).problem == (400, "MALFORMED")
    assert (await client.call("GET", path)).problem == (405, "METHOD_NOT_ALLOWED")
    assert service.replayed == [[7, 9], None]


async def test_management_asks_for_the_token_and_probes_do_not(control: FakeControl) -> None:
    operations = Operations(control, url="http://127.0.0.1:0", tokens=["secret"])
    async with http_client(str(await operations.start())) as client:
        for path in ("/ping", "/ready", "/metrics"):
            assert (await client.call("GET", path)).status == 200
        assert (await client.call("GET", "/v1/status")).problem == (401, "UNAUTHENTICATED")
        headers = {"Authorization": "Bearer secret"}
        assert (await client.call("GET", "/v1/status", headers=headers)).status == 200
        assert (await client.call("GET", "/ping", headers={"Host": "evil"})).problem == (
            403,
            "ORIGIN_REFUSED",
        )
    await operations.stop()


async def test_management_off_loopback_is_closed_without_a_token(control: FakeControl) -> None:
    operations = Operations(control, url="http://0.0.0.0:0")
    bound = await operations.start()
    async with http_client(f"http://127.0.0.1:{bound.port}") as client:
        assert (await client.call("GET", "/metrics")).status == 200
        assert (await client.call("POST", "/v1/bridges/a/stop")).problem == (401, "UNAUTHENTICATED")
    await operations.stop()
    assert control.told == []
