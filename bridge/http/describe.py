"""Addresses as clients and operators see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from bridge.errors import Forbidden
from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.bodies import Query, page, wants_msgpack
from bridge.journal.values.store import AddressStatus, QueueStatus, Store
from bridge.messages.addresses import check_readable

#: A bridge's state and its messages in flight, by its name.
BridgeState = Callable[[str], tuple[str, int]]


class Addresses:
    """Handlers for ``/v1/addresses`` and ``/v1/addresses/{a}``."""

    def __init__(self, store: Store, bridge_state: BridgeState) -> None:
        self._store = store
        self._bridge_state = bridge_state

    async def every(self, request: web.Request, principal: Principal) -> Answer:
        """Handles ``GET /v1/addresses``: those that the caller may send to or read from."""
        Query(request)
        shown = [
            describe(status, self._bridge_state)
            for status in await self._store.addresses()
            if _may_see(principal, status.address)
        ]
        return page(request, {"addresses": shown})

    async def one(self, request: web.Request, principal: Principal, address: str) -> Answer:
        """Handles ``GET /v1/addresses/{a}``."""
        check_readable(address)
        Query(request)
        if not _may_see(principal, address):
            raise Forbidden(
                f"{principal.name} may neither send to nor receive from {address}", "address", found=address
            )
        status = await self._store.address(address)
        return answer(describe(status, self._bridge_state), msgpack=wants_msgpack(request))


def _may_see(principal: Principal, address: str) -> bool:
    return principal.may_send(address) or principal.may_receive(address)


def describe(status: AddressStatus, bridge_state: BridgeState) -> dict[str, Any]:
    """An address with its queues and the bridges that read it."""
    shown: dict[str, Any] = {
        "address": status.address,
        "routing-type": status.routing_type,
        "messages": status.messages,
        "bytes": status.bytes,
        "max-bytes": status.max_bytes,
        "first": status.first,
        "next": status.next,
        "id-cache": {"entries": status.id_cache_entries, "capacity": status.id_cache_capacity},
        "queues": [_describe_queue(queue) for queue in status.queues],
        "bridges": [_describe_bridge(queue, *bridge_state(queue.name)) for queue in status.bridges],
    }
    return shown | {"unrouted": status.unrouted} if status.unrouted else shown


def _describe_queue(queue: QueueStatus) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": queue.name,
        "next": queue.next,
        "lag": queue.lag,
        "leased": queue.leased,
        "idle-ms": queue.idle_ms,
    }
    return shown | {"filter": queue.filter} if queue.filter else shown


def _describe_bridge(queue: QueueStatus, state: str, in_flight: int) -> dict[str, Any]:
    return {
        "name": queue.name,
        "state": state,
        "next": queue.next,
        "lag": queue.lag,
        "in-flight": in_flight,
    }
