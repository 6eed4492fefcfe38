"""Finds the handler of a method and a path: a tree of path segments, walked once a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from aiohttp import web

from bridge.errors import NotFound
from bridge.http.problems import MethodNotAllowed

#: The kind of a request: it may be held, it may wait for messages, or it is quickly done.
Kind = Literal["sends", "reads", "settlements"]
#: ``handler(request, principal, *captured path segments)``.
Handler = Callable[..., Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A handler and how it is called."""

    handler: Handler
    #: Answered without token, while stopping, and above `max-requests`: /ping, /ready, /metrics.
    public: bool = False
    #: Requests of a kind have slots of their own: none waits for those of another kind.
    kind: Kind = "settlements"
    #: Lasts as long as its connection, so that it does not count as a request: the node link.
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Addition:
    """A route that another part of the node adds to a listener."""

    method: str
    #: As `Router.add` takes it.
    template: str
    handler: Handler
    #: Of the operations listener: the call changes something, so its caller and its outcome are logged.
    changes: bool = False
    #: As `Route.lasting`.
    lasting: bool = False


@dataclass(slots=True)
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict)
    capture: _Node | None = None
    methods: dict[str, Route] = field(default_factory=dict)


class Router:
    """Routes by method and template, ``/v1/addresses/{a}/messages``. A literal wins over a capture."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, method: str, template: str, handler: Handler, **how: Any) -> None:
        """Register a handler; `how` are `Route`'s flags."""
        node = self._root
        for segment in template.split("/")[1:]:
            if segment.startswith("{"):
                node.capture = node.capture or _Node()
                node = node.capture
            else:
                node = node.literal.setdefault(segment, _Node())
        how.setdefault("kind", "reads" if method == "GET" else "settlements")
        node.methods[method] = Route(handler, **how)

    def find(self, method: str, path: str) -> tuple[Route, list[str]]:
        """The route, and the segments that its template captures, percent-decoded.

        Raises:
            NotFound: no such path. MethodNotAllowed: the path has other methods.
        """
        node = self._root
        captured: list[str] = []
        for segment in path.split("/")[1:]:
            step = node.literal.get(segment)
            if step is None:
                step = node.capture
                if step is None or not segment:
                    raise NotFound(f"there is nothing at {path}")
                captured.append(unquote(segment) if "%" in segment else segment)
            node = step
        route = node.methods.get(method)
        if route is not None:
            return route, captured
        if not node.methods:
            raise NotFound(f"there is nothing at {path}")
        allowed = ", ".join(sorted(node.methods))
        raise MethodNotAllowed(f"{method} is not one of {allowed}", "method", allowed, method)
