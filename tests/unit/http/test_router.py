"""Paths to handlers."""

from __future__ import annotations

import pytest
from aiohttp import web

from bridge.errors import NotFound
from bridge.http.problems import MethodNotAllowed
from bridge.http.router import Router


async def handler(*_: object) -> web.StreamResponse:
    raise AssertionError("is only found, never called")


@pytest.fixture
def router() -> Router:
    router = Router()
    router.add("GET", "/ping", handler, public=True)
    router.add("GET", "/v1/addresses/{a}", handler)
    router.add("DELETE", "/v1/addresses/{a}", handler)
    router.add("GET", "/v1/addresses/{a}/queues/{q}/messages", handler)
    return router


def test_captured_segments_come_in_order_and_decoded(router: Router) -> None:
    route, captured = router.find("GET", "/v1/addresses/a%2eb/queues/q%20/messages")
    assert captured == ["a.b", "q "]
    assert not route.public
    assert router.find("GET", "/ping")[0].public


@pytest.mark.parametrize(
    "path",
    ["", "/", "/pin", "/ping/", "/v1/addresses", "/v1/addresses/", "/v1/addresses/a/b", "//ping", "/v1//a"],
)
def test_a_path_that_nobody_registered(router: Router, path: str) -> None:
    with pytest.raises(NotFound):
        router.find("GET", path)


def test_a_method_that_nobody_registered_names_the_others(router: Router) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        router.find("PUT", "/v1/addresses/a")
    assert caught.value.limit == "DELETE, GET"
