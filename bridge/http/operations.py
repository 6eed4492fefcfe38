"""The operations listener: alive, ready, metrics, and the operator's calls to a running node.

It opens first and closes last, so that /ping answers as long as the process does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from bridge.errors import BridgeError, JournalUnavailable, NotFound
from bridge.http import codec
from bridge.http.answers import TEXT, Answer, answer, no_content
from bridge.http.authentication import Authentication, Principal
from bridge.http.bodies import SMALL_BODY_BYTES_MAX, Query, read_value, wants_msgpack
from bridge.http.limits import KIB, Limits
from bridge.http.listener import Bound, Listener
from bridge.http.meter import HttpMeter
from bridge.http.router import Addition, Handler, Router
from bridge.journal.dead_letters import DeadLetterService, Letter
from bridge.journal.values.store import Store
from bridge.messages.addresses import check_name, check_readable

#: The text exposition format of Prometheus, version 0.0.4.
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LIMITS: Final = Limits(max_headers_size=16 * KIB, max_requests=64, max_connections=128)
_BODY_TIMEOUT_S: Final = 10.0
_log: Final = structlog.get_logger(__name__)
_SIZE: Final = codec.Decoder(codec.SizeRequest)
_REPLAY: Final = codec.Decoder(codec.ReplayRequest)
#: Dead letters of one page; and the most that a call may ask for.
_LETTERS: Final = 100
_LETTERS_MOST: Final = 1000


class NodeControl(Protocol):
    """The node's interface for the operator's calls."""

    @property
    def store(self) -> Store | None:
        """None until the journal is open."""
        ...

    @property
    def letters(self) -> DeadLetterService | None:
        """The dead letters; None until the journal is open."""
        ...

    @property
    def id_cache_persisted(self) -> bool:
        """Whether ID caches are stored: ``persist-id-cache``."""
        ...

    def ready(self) -> tuple[bool, Sequence[str], Mapping[str, str]]:
        """Whether the node takes messages, why not, and each bridge's state by name."""
        ...

    async def status(self) -> Mapping[str, Any]:
        """The answer of ``GET /v1/status``."""
        ...

    async def bridge(self, bridge: str) -> Mapping[str, Any]:
        """The answer of ``GET /v1/bridges/{name}``. Raises: NotFound."""
        ...

    async def metrics_text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        ...

    async def reload(self) -> Mapping[str, Any]:
        """Read the settings again; what has changed. Raises: BridgeError: nothing has, or what the error
        says.
        """
        ...

    async def start(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        ...

    async def stop(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        ...

    async def pause(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        ...

    async def resume(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        ...

    async def failback(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        ...


class Operations:
    """The listener of ``[operations]`` of the settings."""

    def __init__(
        self,
        control: NodeControl,
        *,
        url: str,
        tokens: Iterable[str] = (),
        meter: HttpMeter | None = None,
        additions: Iterable[Addition] = (),
    ) -> None:
        """`additions`: the calls of the node's extensions."""
        router = Router()
        _add_probes(router, _Probes(control))
        _add_management(router, _Management(control))
        for one in additions:
            handler = _logged(one.handler) if one.changes else one.handler
            router.add(one.method, one.template, handler, lasting=one.lasting)
        authentication = Authentication(host=urlsplit(url).hostname or "127.0.0.1", tokens=tokens)
        self.renew_tokens = authentication.renew_tokens
        self.renew = authentication.renew
        self._listener = Listener(url, router, authentication, _LIMITS, meter=meter)

    async def start(self) -> Bound:
        """Listen. Raises: OSError: the address cannot be used."""
        return await self._listener.start()

    async def stop(self, timeout_ms: int = 1_000) -> None:
        """Let requests under way end for at most `timeout_ms`, then close."""
        await self._listener.stop(timeout_ms / 1000)


def _add_probes(router: Router, probes: _Probes) -> None:
    for path, handler in (("/ping", probes.ping), ("/ready", probes.ready), ("/metrics", probes.metrics)):
        for method in ("GET", "HEAD"):
            router.add(method, path, handler, public=True)


def _add_management(router: Router, management: _Management) -> None:
    router.add("GET", "/v1/status", management.status)
    router.add("POST", "/v1/reload", _logged(management.reload))
    router.add("GET", "/v1/bridges/{name}", management.bridge)
    router.add("POST", "/v1/bridges/{name}/{verb}", _logged(management.operate))
    router.add("GET", "/v1/addresses/{a}/id-cache", management.show_id_cache)
    router.add("DELETE", "/v1/addresses/{a}/id-cache", _logged(management.clear_id_cache))
    router.add("PUT", "/v1/addresses/{a}/id-cache", _logged(management.resize_id_cache))
    router.add("DELETE", "/v1/addresses/{a}", _logged(management.delete_address))
    router.add("DELETE", "/v1/addresses/{a}/queues/{q}", _logged(management.delete_queue))
    router.add("GET", "/v1/dead-letters", management.dead_letters)
    router.add("POST", "/v1/dead-letters/replay", _logged(management.replay))


def _logged(handler: Handler) -> Handler:
    """Wrap the handler of a call that changes something: its caller and its outcome are logged."""

    async def handle(request: web.Request, principal: Principal, *captured: str) -> web.StreamResponse:
        outcome = "FAILED"
        try:
            response = await handler(request, principal, *captured)
            outcome = "done"
        except BridgeError as error:
            outcome = error.code
            raise
        finally:
            _log.info(
                "operator-action",
                action=f"{request.method} {request.rel_url.raw_path}",
                user=principal.name,
                peer=request.remote,
                outcome=outcome,
            )
        return response

    return handle


class _Probes:
    """Handlers of calls that need no token and always answer."""

    def __init__(self, control: NodeControl) -> None:
        self._control = control

    async def ping(self, _request: web.Request, _principal: Principal) -> Answer:
        return Answer(b"pong\n", content_type=TEXT)

    async def ready(self, _request: web.Request, _principal: Principal) -> Answer:
        ready, reasons, bridges = self._control.ready()
        value = {"ready": ready, "reasons": list(reasons), "bridges": dict(bridges)}
        return answer(value, status=HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(self, _request: web.Request, _principal: Principal) -> Answer:
        return Answer(await self._control.metrics_text(), content_type=METRICS_TYPE)


class _Management:
    """Handlers of calls that need the operator's token off loopback."""

    def __init__(self, control: NodeControl) -> None:
        self._control = control

    def _store(self) -> Store:
        if self._control.store is None:
            raise JournalUnavailable("the journal is not open yet")
        return self._control.store

    async def status(self, request: web.Request, _principal: Principal) -> Answer:
        return answer(await self._control.status(), msgpack=wants_msgpack(request))

    async def bridge(self, request: web.Request, _principal: Principal, name: str) -> Answer:
        return answer(await self._control.bridge(name), msgpack=wants_msgpack(request))

    async def reload(self, request: web.Request, _principal: Principal) -> Answer:
        Query(request)
        return answer(await self._control.reload(), msgpack=wants_msgpack(request))

    async def operate(self, request: web.Request, _principal: Principal, name: str, verb: str) -> Answer:
        control = self._control
        verbs = {
            "start": control.start,
            "stop": control.stop,
            "pause": control.pause,
            "resume": control.resume,
            "failback": control.failback,
        }
        if verb not in verbs:
            raise NotFound("a bridge can be told start, stop, pause, resume and failback", "verb", found=verb)
        state = await verbs[verb](name)
        return answer({"bridge": name, "state": state}, msgpack=wants_msgpack(request))

    async def show_id_cache(self, request: web.Request, _principal: Principal, address: str) -> Answer:
        status = await self._store().address(check_readable(address))
        value = {
            "entries": status.id_cache_entries,
            "capacity": status.id_cache_capacity,
            "persisted": self._control.id_cache_persisted,
        }
        return answer(value, msgpack=wants_msgpack(request))

    async def clear_id_cache(self, request: web.Request, _principal: Principal, address: str) -> Answer:
        removed = await self._store().clear_id_cache(check_readable(address))
        return answer({"removed": removed}, msgpack=wants_msgpack(request))

    async def resize_id_cache(self, request: web.Request, _principal: Principal, address: str) -> Answer:
        check_readable(address)
        wanted: codec.SizeRequest = await read_value(request, _SIZE, SMALL_BODY_BYTES_MAX, _BODY_TIMEOUT_S)
        dropped = await self._store().resize_id_cache(address, wanted.size)
        return answer({"size": wanted.size, "dropped": dropped}, msgpack=wants_msgpack(request))

    async def delete_address(self, request: web.Request, _principal: Principal, address: str) -> Answer:
        Query(request)
        await self._store().delete_address(check_readable(address))
        return no_content()

    async def delete_queue(
        self, request: web.Request, _principal: Principal, address: str, queue: str
    ) -> Answer:
        Query(request)
        await self._store().delete_queue(check_readable(address), check_name(queue, "queue"))
        return no_content()

    def _letters(self) -> DeadLetterService:
        if self._control.letters is None:
            raise JournalUnavailable("the journal is not open yet")
        return self._control.letters

    async def dead_letters(self, request: web.Request, _principal: Principal) -> Answer:
        query = Query(request, "after", "max")
        after = query.number("after", -1, -1, 2**50)
        most = query.number("max", _LETTERS, 1, _LETTERS_MOST)
        found = await self._letters().list(after=after, most=most)
        msgpack = wants_msgpack(request)
        return answer({"dead-letters": [_letter(one, msgpack=msgpack) for one in found]}, msgpack=msgpack)

    async def replay(self, request: web.Request, _principal: Principal) -> Answer:
        Query(request)
        wanted: codec.ReplayRequest = await read_value(
            request, _REPLAY, SMALL_BODY_BYTES_MAX, _BODY_TIMEOUT_S
        )
        positions = None if wanted.positions == "all" else wanted.positions
        outcome = await self._letters().replay(positions)
        value = {
            "replayed": outcome.replayed,
            "skipped": [{"position": position, "reason": reason} for position, reason in outcome.skipped],
        }
        return answer(value, msgpack=wants_msgpack(request))


def _letter(letter: Letter, *, msgpack: bool) -> dict[str, Any]:
    duplicate_id = letter.duplicate_id
    return {
        "position": letter.position,
        "dead-letter-address": letter.dead_letter_address,
        "bridge": letter.bridge,
        "address": letter.address,
        "stream": letter.stream,
        "source-position": letter.source_position,
        "reason": letter.reason,
        "size": letter.size,
        "duplicate-id": duplicate_id if msgpack else codec.text_or_base64(duplicate_id),
    }
