"""A node's HTTP as an application sees it: requests, answers, problems. No module of the product is used."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tests.harness.eventually import PATIENCE_S, eventually

HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] in ("application/json", "application/problem+json"), self
        return json.loads(self.body)

    @property
    def msgpack(self) -> Any:
        assert self.headers["content-type"] == "application/msgpack", self
        return msgspec.msgpack.decode(self.body)

    def is_problem(self, status: int, title: str) -> dict[str, Any]:
        """The problem, after a look at its form (RFC 9457)."""
        assert (self.status, self.headers["content-type"]) == (status, "application/problem+json"), self.body
        problem: dict[str, Any] = json.loads(self.body)
        assert (problem["type"], problem["title"], problem["status"]) == ("about:blank", title, status), (
            problem
        )
        assert problem["detail"]
        assert set(problem) <= {
            *("type", "title", "status", "detail", "key", "limit", "found"),
            *("duplicates", "line", "column"),
        }
        assert ("retry-after" in self.headers) == (status == 503)
        return problem


@dataclass(frozen=True)
class Api:
    """One HTTP face of a node; a connection for each call."""

    port: int
    token: str = ""
    tls: ssl.SSLContext | None = None
    #: Name to connect to; certificates are made for it.
    host: str = HOST

    def connect(self, timeout_s: float = PATIENCE_S) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **json_body: Any,
    ) -> Reply:
        """`json_body`: a JSON object, with ``duplicate_id`` for ``duplicate-id``."""
        with contextlib.closing(self.connect()) as connection:
            return exchange(connection, method, path, body, self._with_token(headers), **json_body)

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, headers=_named(headers))

    def await_status(self, path: str, status: int, within_s: float = PATIENCE_S) -> Reply:
        """The first answer with this status."""

        def look() -> Reply | None:
            reply = self.get(path)
            return reply if reply.status == status else None

        return eventually(look, f"{path} answers {status}", within_s)

    def send(self, address: str, body: bytes, **headers: str) -> Reply:
        """One POST; a header is written ``Message_Key``."""
        return self.call("POST", f"/v1/addresses/{address}/messages", body, _named(headers))

    def commit(self, *messages: Mapping[str, Any], **rest: Any) -> Reply:
        return self.call("POST", "/v1/transactions", messages=list(messages), **rest)

    def browse(self, address: str, query: str = "max=1000") -> list[dict[str, Any]]:
        reply = self.get(f"/v1/addresses/{address}/messages?{query}")
        if reply.status == 404:
            return []
        messages: list[dict[str, Any]] = reply.json["messages"]
        return messages

    def bodies(self, address: str) -> list[Any]:
        return [message.get("body", message.get("body-base64")) for message in self.browse(address)]

    def lease(self, address: str, queue: str, query: str = "") -> tuple[str | None, list[dict[str, Any]]]:
        reply = self.get(f"/v1/addresses/{address}/queues/{queue}/messages?{query}")
        assert reply.status == 200, reply
        assert set(reply.json) == {"lease", "messages"}
        return reply.json["lease"], reply.json["messages"]

    def settle(self, verb: str, address: str, queue: str, **lease: Any) -> Reply:
        return self.call("POST", f"/v1/addresses/{address}/queues/{queue}/{verb}", **lease)

    def make_queue(self, address: str, queue: str, **wanted: Any) -> int:
        return self.call("PUT", f"/v1/addresses/{address}/queues/{queue}", **wanted).status

    def _with_token(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        given = dict(headers or {})
        if self.token:
            given.setdefault("Authorization", f"Bearer {self.token}")
        return given


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    **json_body: Any,
) -> Reply:
    """One request on a connection that stays open."""
    given = dict(headers or {})
    if json_body:
        body = json.dumps(
            {name.replace("_", "-").strip("-"): value for name, value in json_body.items()}
        ).encode()
        given.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, given)
    response = connection.getresponse()
    return Reply(
        response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    )


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def titles(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The bodies of messages."""
    return [message["body"] for message in messages]
