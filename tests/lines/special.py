"""Two rows of their own kind: the departures of the demo over 64 kbit/s, and alarms behind a backlog."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bridge.demo.ports import free_ports
from bridge.demo.rows import DEPARTURES
from tests.harness.eventually import eventually
from tests.harness.lines import Line
from tests.harness.node import Node, made_nodes
from tests.lines.rows import KBIT, MIB, Row, Traffic, fill, pair, stored

#: Longest that an alarm may take behind a backlog of another address, in seconds.
ALARM_MOST_S: Final = 3.0
#: Seconds that the line takes for the departures as they are, and as long again.
_DEPARTURES_S: Final = 1_000.0
_ALARMS: Final = 5


@dataclass(frozen=True, slots=True)
class Departures:
    messages: int
    arrived: int
    payload: int
    seconds: float
    up: int
    hub_bytes: int
    edge_bytes: int

    @property
    def text(self) -> str:
        return (
            f"departures over 64 kbit/s: {self.arrived}/{self.messages} in {self.seconds:.0f} s,"
            f" {self.up:,} bytes on the wire of {self.payload:,};"
            f" hub {self.hub_bytes / MIB:.0f} MiB, edge {self.edge_bytes / MIB:.0f} MiB"
        )


def departures(directory: Path, within_s: float = _DEPARTURES_S) -> Departures:
    """The file of the demo from node to node over 64 kbit/s, 50 ms."""
    directory.mkdir(parents=True)
    lines = DEPARTURES.read_bytes().splitlines()
    (port,) = free_ports(1)
    row = Row("departures", Traffic("lines", len(lines), 0), {})
    with made_nodes(directory) as make_node:
        hub, edge = pair(make_node, row, port, None)
        for start in range(0, len(lines), 1000):
            messages = [
                {"address": "orders", "body": line, "duplicate-id": json.loads(line)["id"]}
                for line in lines[start : start + 1000]
            ]
            packed = msgspec.msgpack.encode({"messages": messages})
            reply = edge.api.call("POST", "/v1/transactions", packed, {"Content-Type": "application/msgpack"})
            assert reply.status == 200, reply
        with Line(hub.port, port=port, rate=64 * KBIT, delay_ms=25) as line:
            began = time.monotonic()
            with contextlib.suppress(AssertionError):
                eventually(lambda: stored(hub) >= len(lines), "all departures arrive", within_s)
            seconds = time.monotonic() - began
            return Departures(
                len(lines), stored(hub), sum(map(len, lines)), seconds, line.up.carried,
                hub.most_resident, edge.most_resident,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alarms:
    #: Seconds of each alarm; the time waited where it had not come.
    seconds: tuple[float, ...]
    #: Messages of the backlog that had arrived when the last alarm came.
    backlog: int

    @property
    def text(self) -> str:
        took = ", ".join(f"{seconds:.1f}" for seconds in self.seconds)
        return (
            f"alarms behind 4 MB at 60 kB/s: {took} s (<= {ALARM_MOST_S:g} s);"
            f" {self.backlog} of 400 messages had arrived by the last"
        )


def alarm(directory: Path, within_s: float = 90.0, **bridge: str) -> Alarms:
    """Single messages of one address while 4 MB of another wait: `bridge` are further keys of the bridge."""
    directory.mkdir(parents=True)
    (port,) = free_ports(1)
    row = Row(
        "alarm", Traffic("10 kB", 400, 10_000), {}, bridge={"queue_name": '["telemetry", "alarms"]', **bridge}
    )
    took: list[float] = []
    with made_nodes(directory) as make_node:
        hub, edge = pair(make_node, row, port, None)
        assert edge.api.send("alarms", b"first").status == 200
        with Line(hub.port, port=port, rate=60_000, delay_ms=25) as line:
            eventually(lambda: stored(hub, "alarms") == 1, "the bridge is there")
            fill(edge, row.traffic, "telemetry")
            for number in range(1, _ALARMS + 1):
                if not _in_use(line, hub, row.traffic.count):
                    break
                assert edge.api.send("alarms", b"%d" % number).status == 200
                took.append(_seconds_until(hub, number + 1, within_s))
                if took[-1] >= within_s:
                    break
            return Alarms(tuple(took), stored(hub, "telemetry"))


def _in_use(line: Line, hub: Node, count: int, more: int = 200_000) -> bool:
    """Wait until the line has carried so many more bytes; False: the whole backlog is there."""
    passed = line.up.delivered + more
    eventually(
        lambda: line.up.delivered >= passed or stored(hub, "telemetry") >= count, "the line is in use", 60.0
    )
    return stored(hub, "telemetry") < count


def _seconds_until(hub: Node, number: int, within_s: float) -> float:
    """The time until the hub has so many alarms; all of it where it never has."""
    began = time.monotonic()
    with contextlib.suppress(AssertionError):
        eventually(lambda: stored(hub, "alarms") >= number, "the alarm arrives", within_s)
    return time.monotonic() - began
