"""A node in memory that speaks contract.md's acceptor calls, and can lose answers on purpose."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

MSGPACK = "application/msgpack"


@dataclass
class FakeAddress:
    messages: list[dict[str, Any]] = field(default_factory=list)
    ids: set[bytes] = field(default_factory=set)
    #: By queue: positions settled, and open leases.
    settled: dict[str, set[int]] = field(default_factory=dict)
    leases: dict[str, dict[str, list[int]]] = field(default_factory=dict)


class FakeNode:
    """Listens on a free port; `url` after entering."""

    def __init__(self) -> None:
        self.addresses: dict[str, FakeAddress] = {}
        #: "METHOD path" of every request, in order.
        self.calls: list[str] = []
        #: Asked once a request, after it took effect: "answer", "lose" (cut without an answer).
        self.after: Callable[[web.Request], str] = lambda _: "answer"
        #: Asked once a request, before it takes effect: None, or a problem's (status, title).
        self.before: Callable[[web.Request], tuple[int, str] | None] = lambda _: None
        #: Where an answer of `before` with a status of 3xx sends the caller; empty: nowhere.
        self.leads_to = ""
        self.url = ""
        self._lease_numbers = itertools.count(1)
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def bodies(self, address: str) -> list[bytes]:
        return [message["body"] for message in self.addresses[address].messages]

    def end_leases(self, address: str, queue: str) -> None:
        """As if every lease had run out: the messages are next again."""
        self.addresses[address].leases[queue].clear()

    async def _serve(self, request: web.Request) -> web.StreamResponse:  # noqa: C901 - a table of calls
        self.calls.append(f"{request.method} {request.path}")
        refused = self.before(request)
        if refused is not None:
            return problem(*refused, self.leads_to)
        parts = request.path.removeprefix("/v1/").split("/")
        try:
            match request.method, parts:
                case "POST", ["transactions"]:
                    answer = self._commit(msgspec.msgpack.decode(await request.read()))
                case "POST", ["addresses", address, "messages"]:
                    answer = self._post(address, await request.read(), request.headers.get("Duplicate-Id"))
                case "GET", ["addresses", address, "messages"]:
                    answer = self._browse(address, request)
                case "GET", ["addresses", address]:
                    answer = self._status(address)
                case "PUT", ["addresses", address, "queues", queue]:
                    self.addresses.setdefault(address, FakeAddress()).settled.setdefault(queue, set())
                    answer = {}
                case "GET", ["addresses", address, "queues", queue, "messages"]:
                    answer = await self._lease(address, queue, request)
                case "POST", ["addresses", address, "queues", queue, verb]:
                    self._settle(address, queue, verb, msgspec.msgpack.decode(await request.read()))
                    answer = {}
                case _:
                    return problem(404, "NOT_FOUND")
        except KeyError as error:
            return problem(404, str(error.args[0]))
        except PermissionError:
            return problem(409, "STALE_LEASE")
        if self.after(request) == "lose":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=msgspec.msgpack.encode(answer), content_type=MSGPACK)

    def _commit(self, unit: dict[str, Any]) -> dict[str, Any]:
        messages = unit["messages"]
        own = unit.get("duplicate-id")
        touched = {message["address"]: self._address(message["address"]) for message in messages}
        if own is not None:
            if any(own.encode() in address.ids for address in touched.values()):
                return {"verdict": "duplicate"}
            for address in touched.values():
                address.ids.add(own.encode())
        skipped = []
        for index, message in enumerate(messages):
            if not self._store(touched[message["address"]], message["body"], message.get("duplicate-id")):
                assert unit.get("on-duplicate") == "skip"
                skipped.append(index)
        return {"verdict": "stored", "positions": {}} | ({"duplicates": skipped} if skipped else {})

    def _post(self, name: str, body: bytes, duplicate_id: str | None) -> dict[str, Any]:
        stored = self._store(self._address(name), body, duplicate_id)
        return {"verdict": "stored"} if stored else {"verdict": "duplicate"}

    def _store(self, address: FakeAddress, body: bytes, duplicate_id: str | None) -> bool:
        if duplicate_id is not None:
            if duplicate_id.encode() in address.ids:
                return False
            address.ids.add(duplicate_id.encode())
        address.messages.append(
            {
                "position": len(address.messages),
                "body": body,
                "key": None,
                "headers": {},
                "duplicate-id": duplicate_id and duplicate_id.encode(),
                "timestamp": None,
            }
        )
        return True

    def _address(self, name: str) -> FakeAddress:
        return self.addresses.setdefault(name, FakeAddress())

    def _queue(self, name: str, queue: str) -> FakeAddress:
        if name not in self.addresses:
            raise KeyError("ADDRESS_NOT_FOUND")
        if queue not in self.addresses[name].settled:
            raise KeyError("QUEUE_NOT_FOUND")
        return self.addresses[name]

    def _status(self, name: str) -> dict[str, Any]:
        address = self.addresses[name]
        held = {queue: sum(map(len, leases.values())) for queue, leases in address.leases.items()}
        return {"queues": [{"name": queue, "leased": held.get(queue, 0)} for queue in address.settled]}

    def _browse(self, name: str, request: web.Request) -> dict[str, Any]:
        if name not in self.addresses:
            raise KeyError("ADDRESS_NOT_FOUND")
        after, most = int(request.query["after"]), int(request.query["max"])
        return {"messages": self.addresses[name].messages[after + 1 :][:most]}

    async def _lease(self, name: str, queue: str, request: web.Request) -> dict[str, Any]:
        address = self._queue(name, queue)
        deadline = asyncio.get_running_loop().time() + int(request.query["wait"]) / 1000
        while True:
            leases = address.leases.setdefault(queue, {})
            busy = {position for positions in leases.values() for position in positions}
            free = [
                message
                for message in address.messages
                if message["position"] not in busy | address.settled[queue]
            ][: int(request.query["max"])]
            if free or asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(0.01)
        if not free:
            return {"lease": None, "messages": []}
        lease = f"lease-{next(self._lease_numbers)}"
        leases[lease] = [message["position"] for message in free]
        return {"lease": lease, "messages": free}

    def _settle(self, name: str, queue: str, verb: str, request: dict[str, Any]) -> None:
        address = self._queue(name, queue)
        positions = address.leases.get(queue, {}).pop(request["lease"], None)
        if positions is None:
            raise PermissionError
        if verb == "acknowledge":
            address.settled[queue].update(positions)


def problem(status: int, title: str, leads_to: str = "") -> web.Response:
    body = msgspec.json.encode(
        {"type": "about:blank", "title": title, "status": status, "detail": title.lower()}
    )
    headers = {"Location": leads_to} if leads_to else {}
    return web.Response(status=status, body=body, content_type="application/problem+json", headers=headers)
