"""Rows of the table of lines: a node sends a backlog to another over a `Line`.

Tests and `python -m benchmarks lines` run the same rows. A row ends when all has arrived, or when the time is
over in which the line carries all of it with the least share that a row allows.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any, Final, Protocol

import msgspec

from bridge.demo.ports import free_ports
from tests.harness.certificates import client_tls
from tests.harness.eventually import eventually
from tests.harness.lines import Line
from tests.harness.node import MakeNode, Node, bridge_to, made_nodes, start_together

KIB: Final = 1024
MIB: Final = 1024 * KIB
KBIT: Final = 125
BRIDGE: Final = "orders-to-hub"
#: Least goodput as a share of what the line carries; with loss or resets.
SHARE: Final = 0.8
SHARE_BROKEN: Final = 0.6
#: Most bytes on the wire for each of the payload, over breaks.
WIRE_MOST: Final = 1.3
#: Beside the bytes' time: to connect, and until rate and round trip of the line are known.
BEGIN_S: Final = 5.0
BEGIN_ROUND_TRIPS: Final = 10
#: Pause between two looks at the hub, in seconds.
_LOOK_S: Final = 0.2
#: Most bytes of a transaction that fills the edge.
_TRANSACTION: Final = 4 * MIB
_PAGE: Final = 1000
#: From here on a body is sent and read by itself.
_LARGE: Final = MIB
#: Rows that start at once may take this long to be ready, in seconds.
_READY_S: Final = 300.0
_LIMITS: Final = 'max-message-size = "64MiB"\n'
ROOM: Final = '[address-settings."#"]\nmax-size-bytes = "1GiB"\n'
_TLS: Final = 'certificate = "{0}/node.pem"\nkey = "{0}/node.key"\n'


@dataclass(frozen=True, slots=True)
class Traffic:
    """So many messages of a size. Their bytes are random, and so are no smaller when compressed."""

    name: str
    count: int
    size: int

    @property
    def payload(self) -> int:
        return self.count * self.size

    def body(self, number: int) -> bytes:
        return random.Random(f"{self.size}:{number}").randbytes(self.size)


@dataclass(frozen=True, slots=True)
class Row:
    """One line, one kind of traffic, and what must hold."""

    name: str
    traffic: Traffic
    #: Arguments of `Line`.
    line: Mapping[str, float]
    tls: bool = False
    #: Further keys of the bridge, as `bridge_to` takes them.
    bridge: Mapping[str, str] = field(default_factory=dict)
    #: Bytes delivered after which the line is a black hole for the connections of then.
    swallow_after: int | None = None
    #: Longest until a node sees that its connection is dead, in seconds.
    dead_s: float = 0.0
    #: Round trips until the target is ready for the first message.
    begin_round_trips: int = BEGIN_ROUND_TRIPS

    @property
    def share(self) -> float:
        """The least goodput, as a share of what the line carries."""
        return SHARE_BROKEN if self.line.get("loss") or self.line.get("reset_every_s") else SHARE

    @property
    def allowed_s(self) -> float:
        """The time in which all must have arrived."""
        round_trips_s = self.begin_round_trips * 2 * self.line.get("delay_ms", 0) / 1000
        begin_s = BEGIN_S + round_trips_s + self.dead_s
        return self.passes_by(begin_s + self.traffic.payload / self.line["rate"] / self.share)

    def passes_by(self, open_s: float) -> float:
        """The time at which a line that is cut at times has been open for so long."""
        cut_s, every_s = self.line.get("cut_s", 0.0), self.line.get("cut_every_s", 60.0)
        return open_s + cut_s * (open_s // (every_s - cut_s)) if cut_s else open_s

    def open_s(self, seconds: float) -> float:
        """The part of the first so many seconds in which the line is not cut."""
        cut_s, every_s = self.line.get("cut_s", 0.0), self.line.get("cut_every_s", 60.0)
        return seconds // every_s * (every_s - cut_s) + min(seconds % every_s, every_s - cut_s)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a row."""

    row: Row
    seconds: float
    #: Messages at the hub, and whether each is there once, whole and in order.
    arrived: int
    as_sent: bool
    #: Bytes that used the wire, to the hub and back.
    up: int
    down: int
    connections: int
    hub_bytes: int
    edge_bytes: int

    @property
    def share(self) -> float:
        """Goodput as a share of what the line carries in the same time."""
        carried = self.row.line["rate"] * self.row.open_s(self.seconds)
        return self.arrived * self.row.traffic.size / carried

    @property
    def wire(self) -> float:
        """Bytes to the hub on the wire for each byte of the whole payload."""
        return self.up / self.row.traffic.payload

    @property
    def text(self) -> str:
        """One line of the table."""
        row, traffic = self.row, self.row.traffic
        cells = (
            f"{row.name:<45}",
            f"{self.arrived:>5}/{traffic.count:<5}",
            f"{self.seconds:>5.0f} s of {row.allowed_s:>5.0f}",
            f"goodput {self.share:>4.0%}",
            f"wire {self.wire:>5.2f}",
            f"links {self.connections:>3}",
            f"hub {self.hub_bytes / MIB:>4.0f} MiB, edge {self.edge_bytes / MIB:>4.0f} MiB",
            "" if self.as_sent else "NOT AS SENT",
        )
        return "  ".join(cells).rstrip()

    def assert_holds(self) -> None:
        """All has arrived in time, as it was sent."""
        assert self.as_sent, self.text
        assert self.arrived == self.row.traffic.count, self.text
        if self.row.line.get("reset_every_s") or self.row.line.get("cut_s"):
            assert self.wire <= WIRE_MOST, self.text


def pair(make_node: MakeNode, row: Row, port: int, certificates: Path | None) -> tuple[Node, Node]:
    """Hub and edge, started; the bridge finds nobody at `port` yet."""
    keys: dict[str, str] = {"connector__url": f'"ws://127.0.0.1:{port}"'}
    hub_fields: dict[str, Any] = {"acceptor": _LIMITS}
    if row.tls:
        assert certificates is not None
        keys = {
            "connector__url": f'"wss://localhost:{port}"',
            "connector__ca": f'"{certificates}/authority.pem"',
        }
        hub_fields = {
            "scheme": "wss",
            "tls": client_tls(certificates),
            "acceptor": _LIMITS + _TLS.format(certificates),
        }
    hub = make_node("hub", ROOM, **hub_fields)
    edge = make_node("edge", ROOM + bridge_to(hub, BRIDGE, **(keys | dict(row.bridge))), acceptor=_LIMITS)
    start_together(hub, edge)
    return hub, edge


def fill(edge: Node, traffic: Traffic, address: str = "orders") -> None:
    """Send it all to the edge."""
    numbers = iter(range(traffic.count))
    if traffic.size >= _LARGE:
        for number in numbers:
            assert edge.api.send(address, traffic.body(number)).status == 200
        return
    most = max(1, min(_PAGE, _TRANSACTION // traffic.size))
    while some := [traffic.body(number) for number in itertools.islice(numbers, most)]:
        packed = msgspec.msgpack.encode({"messages": [{"address": address, "body": body} for body in some]})
        reply = edge.api.call("POST", "/v1/transactions", packed, {"Content-Type": "application/msgpack"})
        assert reply.status == 200, reply


def stored(node: Node, address: str = "orders") -> int:
    """Messages that an address has; 0: there is no such address yet."""
    reply = node.api.get(f"/v1/addresses/{address}")
    return int(reply.json["messages"]) if reply.status == 200 else 0


def digests(node: Node, address: str = "orders") -> Iterator[bytes]:
    """SHA-256 of the bodies at an address, in its order."""
    after = -1
    while True:
        path = f"/v1/addresses/{address}/messages?max={_PAGE}" + (f"&after={after}" if after >= 0 else "")
        reply = node.api.get(path, Accept="application/msgpack")
        page = reply.msgpack["messages"] if reply.status == 200 else ()
        if not page:
            return
        for message in page:
            after = message["position"]
            body = message.get("body")
            if body is None:
                body = node.api.get(f"/v1/addresses/{address}/messages/{after}").body
            yield hashlib.sha256(body).digest()


class Target(Protocol):
    """What a row sends to: another node, or a cluster."""

    @property
    def port(self) -> int:
        """Of the target itself, behind the line."""
        ...

    def stored(self) -> int:
        """The messages that it has."""
        ...

    def digests(self) -> Iterable[bytes]:
        """Of their bodies, in order."""
        ...

    @property
    def most_resident(self) -> int:
        """The most bytes of memory that it has had; 0: not known."""
        ...


@dataclass(frozen=True, slots=True)
class Hub:
    """Another node."""

    node: Node

    @property
    def port(self) -> int:
        return self.node.port

    def stored(self) -> int:
        return stored(self.node)

    def digests(self) -> Iterator[bytes]:
        return digests(self.node)

    @property
    def most_resident(self) -> int:
        return self.node.most_resident


def run(
    row: Row, directory: Path, certificates: Path | None = None, ready: Barrier | None = None
) -> Measured:
    """Run a row in a directory of its own. `ready`: rows that run side by side begin together."""
    (port,) = free_ports(1)
    with made_nodes(directory) as make_node:
        try:
            hub, edge = pair(make_node, row, port, certificates)
            fill(edge, row.traffic)
        except BaseException:
            if ready is not None:
                ready.abort()
            raise
        if ready is not None:
            ready.wait(_READY_S)
        return relay(row, edge, Hub(hub), port)


def relay(row: Row, edge: Node, target: Target, port: int, address: str = "orders") -> Measured:
    """Let the edge's backlog of an address go over the row's line, which listens at `port`."""
    with Line(target.port, port=port, **row.line) as line:  # type: ignore[arg-type]
        seconds = _wait(row, line, target)
        arrived = target.stored()
        up, down = line.up.carried, line.down.carried
        if arrived >= row.traffic.count:
            # Its receipts are on their way still.
            with contextlib.suppress(AssertionError):
                eventually(lambda: stored(edge, address) == 0, "the edge has its receipts", row.allowed_s)
        found = [*target.digests()]
        sent = (hashlib.sha256(row.traffic.body(number)).digest() for number in range(row.traffic.count))
        return Measured(
            row=row,
            seconds=seconds,
            arrived=arrived,
            as_sent=found == [*itertools.islice(sent, len(found))],
            up=up,
            down=down,
            connections=line.connections,
            hub_bytes=target.most_resident,
            edge_bytes=edge.most_resident,
        )


def _wait(row: Row, line: Line, target: Target) -> float:
    """Wait until all has arrived or its time is over; returns the seconds it took."""
    began = time.monotonic()
    swallow_after = row.swallow_after
    while (seconds := time.monotonic() - began) < row.allowed_s:
        if target.stored() >= row.traffic.count:
            break
        if swallow_after is not None and line.up.delivered >= swallow_after:
            line.swallow()
            line.heal()
            swallow_after = None
        time.sleep(_LOOK_S)
    return seconds


def run_together(
    rows: Sequence[Row], directory: Path, certificates: Path | None
) -> Iterator[tuple[Row, Measured | BaseException]]:
    """Run rows side by side, all at once: they wait for their lines most of the time."""
    ready = Barrier(len(rows))
    return run_each(rows, directory, lambda row, own: run(row, own, certificates, ready), len(rows))


def run_each(
    rows: Sequence[Row], directory: Path, run_one: Callable[[Row, Path], Measured], at_once: int
) -> Iterator[tuple[Row, Measured | BaseException]]:
    """Run rows, so many side by side, each in a directory of its own; what came of each, as it ends."""
    with ThreadPoolExecutor(at_once) as pool:
        asked = {}
        for number, row in enumerate(rows):
            own = directory / f"{number:03}-{re.sub('[^a-z0-9]+', '-', row.name.lower())}"
            own.mkdir(parents=True)
            asked[pool.submit(run_one, row, own)] = row
        for future in as_completed(asked):
            error = future.exception()
            yield asked[future], future.result() if error is None else error
