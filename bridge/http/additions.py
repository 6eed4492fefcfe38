"""Calls that extensions add to a listener, made without HTTP of their own."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.bodies import wants_msgpack
from bridge.http.router import Addition


def shown(template: str, read: Callable[[], object]) -> Addition:
    """``GET`` of a value that `read` returns at once."""

    async def show(request: web.Request, _principal: Principal) -> Answer:
        return answer(read(), msgpack=wants_msgpack(request))

    return Addition("GET", template, show)
