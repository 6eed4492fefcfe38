"""Queues of an address: making, reading under a lease, settling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, Final

import structlog
from aiohttp import web

from bridge.errors import FilterRefused, StaleLease, TooBusy
from bridge.http import codec
from bridge.http.answers import Answer, answer, no_content
from bridge.http.authentication import Principal
from bridge.http.bodies import SMALL_BODY_BYTES_MAX, Query, messages_page, read_value, wants_msgpack
from bridge.http.connection import connection_of, take
from bridge.http.limits import (
    FILTER_CHARS_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    MESSAGES_A_PAGE_DEFAULT,
    MESSAGES_A_PAGE_MAX,
    PAGE_BYTES_MAX,
    WAIT_MS_MAX,
)
from bridge.journal.values.store import Acknowledgement, Page, Store
from bridge.messages.addresses import check_name
from bridge.settings.artemis import QUEUE_ANSWERS

_QUEUE: Final = codec.Decoder(codec.QueueRequest, answers=QUEUE_ANSWERS)
_LEASE: Final = codec.Decoder(codec.LeaseRequest)
_NOTHING: Final = Page(None)
_log: Final = structlog.get_logger(__name__)


class Queues:
    """Handlers for ``/v1/addresses/{a}/queues/{q}``."""

    def __init__(self, store: Store, body_timeout_s: float) -> None:
        self._store = store
        self._body_timeout_s = body_timeout_s

    async def create(self, request: web.Request, principal: Principal, address: str, queue: str) -> Answer:
        """Handles ``PUT``: 201 new, 200 there already. Without a body: from the earliest message on.

        With a filter, that of a queue that is there is changed, for callers that may delete it: both decide
        what its readers do not get.
        """
        _check(principal, address, queue)
        wanted: codec.QueueRequest = await self._read(request, _QUEUE, default=b"{}")
        if wanted.filter and len(wanted.filter) > FILTER_CHARS_MAX:
            detail = f"a filter has at most {FILTER_CHARS_MAX} characters here; found {len(wanted.filter)}"
            raise FilterRefused(detail, "filter", FILTER_CHARS_MAX, len(wanted.filter))
        created = await self._store.create_queue(
            address,
            queue,
            wanted.start,
            wanted.filter,
            user=principal.name,
            may_change_filter=principal.may_delete_queue(address),
        )
        if created:
            _log.info("queue-made", address=address, queue=queue, user=principal.name)
        value = {"address": address, "queue": queue, "created": created}
        return answer(value, msgpack=wants_msgpack(request), status=201 if created else 200)

    async def delete(self, request: web.Request, principal: Principal, address: str, queue: str) -> Answer:
        """Handles ``DELETE``: 204, for callers with a right of its own."""
        check_name(address)
        check_name(queue, "queue")
        principal.check_delete_queue(address)
        Query(request)
        await self._store.delete_queue(address, queue)
        _log.info("queue-deleted", address=address, queue=queue, user=principal.name)
        return no_content()

    async def lease(self, request: web.Request, principal: Principal, address: str, queue: str) -> Answer:
        """Handles ``GET .../messages``: the next messages that no reader has leased."""
        _check(principal, address, queue)
        query = Query(request, "max", "wait", "lease")
        most = query.number("max", MESSAGES_A_PAGE_DEFAULT, 1, MESSAGES_A_PAGE_MAX)
        wait_ms = query.number("wait", 0, 0, WAIT_MS_MAX)
        lease_ms = query.number("lease", LEASE_MS_DEFAULT, 1, LEASE_MS_MAX)
        while True:
            pending = self._store.lease(
                address, queue, most=most, wait_ms=wait_ms, lease_ms=lease_ms, most_bytes=PAGE_BYTES_MAX
            )
            leased = await (_until_gone(request, pending) if wait_ms else pending)
            if leased.lease is not None and request.transport is None:
                # The reader left while the page was made: its messages are next again, now.
                await self._return(address, queue, leased.lease)
                leased = _NOTHING
            made, fitting = messages_page(request, leased.messages, lease=leased.lease)
            if len(fitting) == len(leased.messages):
                break
            # Messages that are not shown must not be leased: a lease of fewer takes its place.
            await self._return(address, queue, leased.lease)
            most, wait_ms = len(fitting), 0
        try:
            take(request, len(made.body))
        except TooBusy:
            await self._return(address, queue, leased.lease)
            raise
        return made

    async def _return(self, address: str, queue: str, lease: str | None) -> None:
        """Release the lease, so that its messages are next again, where it has not ended by itself."""
        if lease is not None:
            with contextlib.suppress(StaleLease):
                await self._store.release(Acknowledgement(address, queue, lease))

    async def acknowledge(
        self, request: web.Request, principal: Principal, address: str, queue: str
    ) -> Answer:
        """Handles ``POST .../acknowledge``: settles messages; the rest of the lease returns."""
        _check(principal, address, queue)
        await self._store.acknowledge(await self._read_lease(request, address, queue))
        return no_content()

    async def release(self, request: web.Request, principal: Principal, address: str, queue: str) -> Answer:
        """Handles ``POST .../release``: returns the messages unsettled."""
        _check(principal, address, queue)
        await self._store.release(await self._read_lease(request, address, queue))
        return no_content()

    async def _read_lease(self, request: web.Request, address: str, queue: str) -> Acknowledgement:
        given: codec.LeaseRequest = await self._read(request, _LEASE)
        return Acknowledgement(address, queue, given.lease, given.upto)

    async def _read(self, request: web.Request, decoder: codec.Decoder, default: bytes = b"") -> Any:
        return await read_value(request, decoder, SMALL_BODY_BYTES_MAX, self._body_timeout_s, default=default)


def _check(principal: Principal, address: str, queue: str) -> None:
    check_name(address)
    check_name(queue, "queue")
    principal.check_receive(address)


async def _until_gone(request: web.Request, pending: Awaitable[Page]) -> Page:
    """The page, or nothing as soon as the client leaves or the node stops.

    A reader that gives up and asks again must not leave polls behind: each would hold one of `max-requests`
    and could lease messages that no reader gets.
    """
    poll = asyncio.ensure_future(pending)
    connection = connection_of(request)
    connection.poll = poll
    try:
        await asyncio.wait({poll})
    finally:
        connection.poll = None
        poll.cancel()
    return _NOTHING if poll.cancelled() else poll.result()
