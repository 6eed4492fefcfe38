"""Calls that extensions add to a listener, made without HTTP of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.bodies import read_value, wants_msgpack
from bridge.http.codec import Decoder
from bridge.http.router import Addition


def shown(template: str, read: Callable[[], object]) -> Addition:
    """``GET`` of a value that `read` returns at once."""

    async def show(request: web.Request, _principal: Principal) -> Answer:
        return answer(read(), msgpack=wants_msgpack(request))

    return Addition("GET", template, show)


T = TypeVar("T")
#: Longest time for a body to arrive.
_BODY_TIMEOUT_S = 10.0


def taken(
    template: str,
    body: type[T] | Any,
    most_bytes: int,
    act: Callable[[T, Principal], Awaitable[object]],
    *,
    default: bytes = b"",
    changes: bool = True,
) -> Addition:
    """``POST`` of a value of the type `body`, of at most `most_bytes`; `act` answers it.

    `default`: the JSON of a body that is empty. `changes` as in `Addition`.
    """
    decoder = Decoder(body)

    async def take(request: web.Request, principal: Principal) -> Answer:
        value = await read_value(request, decoder, most_bytes, _BODY_TIMEOUT_S, default=default)
        return answer(await act(value, principal), msgpack=wants_msgpack(request))

    return Addition("POST", template, take, changes=changes)
