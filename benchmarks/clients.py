"""Clients of the least possible cost: raw sockets, requests made once, run as a process of their own.

``python -m benchmarks.clients KIND PORT COUNT CONNECTIONS`` prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec

MESSAGE_BYTES = 1024
TRANSACTION = 500
PAGE = 100


class Connection(asyncio.Protocol):
    """One keep-alive connection that asks its next request as soon as the last one is answered."""

    def __init__(self, requests: Iterator[bytes], latencies: list[float], done: asyncio.Future[None]) -> None:
        self.requests, self.latencies, self.done = requests, latencies, done
        self.buffer = b""
        self.began = 0.0
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.next()

    def next(self) -> None:
        request = next(self.requests, None)
        if request is None:
            if not self.done.done():
                self.done.set_result(None)
            return
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        length_at = self.buffer.find(b"ontent-Length: ", 0, head) + 15
        length = int(self.buffer[length_at : self.buffer.find(b"\r", length_at)]) if length_at > 14 else 0
        if len(self.buffer) < head + 4 + length:
            return
        if not self.buffer.startswith(b"HTTP/1.1 20"):
            raise SystemExit(f"answered {self.buffer[:300]!r}")
        self.latencies.append(time.perf_counter() - self.began)
        self.body, self.buffer = self.buffer[head + 4 :], b""
        self.answered()

    def answered(self) -> None:
        self.next()


class Reader(Connection):
    """Reads pages and acknowledges each before it asks for the next."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lease: str | None = None

    def next(self) -> None:
        if self.lease is None:
            super().next()
            return
        body = json.dumps({"lease": self.lease}).encode()
        self.lease = None
        path = b"/v1/addresses/orders/queues/q/acknowledge"
        self.transport.write(_request(b"POST", path, body, b"application/json"))

    def answered(self) -> None:
        if self.body:
            page = json.loads(self.body)
            self.lease = page.get("lease")
            if "messages" in page and self.lease is None:
                self.requests = iter(())
        self.next()


def _request(method: bytes, path: bytes, body: bytes, content_type: bytes) -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        method,
        path,
        content_type,
        len(body),
        body,
    )


def _requests(kind: str, count: int) -> Iterator[bytes]:
    body = b"x" * MESSAGE_BYTES
    if kind == "single":
        one = _request(b"POST", b"/v1/addresses/orders/messages", body, b"application/octet-stream")
        number = count
    elif kind == "transaction":
        messages = [{"address": "orders", "body": body}] * TRANSACTION
        packed = msgspec.msgpack.encode({"messages": messages})
        one = _request(b"POST", b"/v1/transactions", packed, b"application/msgpack")
        number = count // TRANSACTION
    else:
        one = b"GET /v1/addresses/orders/queues/q/messages?max=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % PAGE
        number = count // PAGE
    for _ in range(number):
        yield one


async def _run(kind: str, port: int, count: int, connections: int) -> None:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    requests = _requests(kind, count)
    finished = [loop.create_future() for _ in range(connections)]
    make = Reader if kind == "read" else Connection
    began = time.perf_counter()
    for done in finished:
        await loop.create_connection(lambda done=done: make(requests, latencies, done), "127.0.0.1", port)
    await asyncio.gather(*finished)
    seconds = time.perf_counter() - began
    latencies.sort()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    at = lambda share: latencies[min(int(len(latencies) * share), len(latencies) - 1)] * 1000  # noqa: E731
    print(
        json.dumps(
            {
                "messages/s": count / seconds,
                "began": began,
                "seconds": seconds,
                "p50": at(0.5),
                "p90": at(0.9),
                "p99": at(0.99),
                "client-cpu": usage.ru_utime + usage.ru_stime,
            }
        )
    )


if __name__ == "__main__":
    import uvloop

    _kind, _port, _count, _connections = sys.argv[1:]
    uvloop.run(_run(_kind, int(_port), int(_count), int(_connections)))
