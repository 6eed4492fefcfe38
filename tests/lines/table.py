"""The rows of the table: each kind of line with each kind of traffic, plain and with TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tests.lines.rows import KBIT, Row, Traffic

#: Seconds that a row's payload takes on its line, unless one body alone takes longer.
_ROW_S: Final = 60
SMALL: Final = 500
MIDDLE: Final = 100_000
LARGE: Final = 20_000_000
#: In its place below `_SLOW`, where 20 MB take from 40 minutes to three hours.
LARGE_SLOW: Final = 2_000_000
_SLOW: Final = 256 * KBIT
#: In its place to Kafka: with its headers, what a topic takes by default.
LARGE_KAFKA: Final = 900_000

#: Arguments of `Line` by kind of line.
LINES: Final[Mapping[str, Mapping[str, float]]] = {
    "16 kbit/s": {"rate": 16 * KBIT},
    "64 kbit/s": {"rate": 64 * KBIT},
    "256 kbit/s": {"rate": 256 * KBIT},
    "1000 kbit/s": {"rate": 1000 * KBIT},
    "1000 kbit/s, 50 ms": {"rate": 1000 * KBIT, "delay_ms": 25},
    "1000 kbit/s, 200 ms": {"rate": 1000 * KBIT, "delay_ms": 100},
    "1000 kbit/s, 600 ms": {"rate": 1000 * KBIT, "delay_ms": 300},
    "1000 kbit/s, 50 ms, loss 1 %": {"rate": 1000 * KBIT, "delay_ms": 25, "loss": 0.01},
    "1000 kbit/s, 50 ms, loss 5 %": {"rate": 1000 * KBIT, "delay_ms": 25, "loss": 0.05},
    "256 kbit/s, cut 30 s every 60 s": {"rate": 256 * KBIT, "cut_s": 30, "cut_every_s": 60},
    "1000 kbit/s, reset every 5 s": {"rate": 1000 * KBIT, "delay_ms": 10, "reset_every_s": 5},
    "256 kbit/s, black hole": {"rate": 256 * KBIT, "delay_ms": 25},
}
#: A bridge to Kafka begins with some connections, each with several requests, one after the other.
_KAFKA_ROUND_TRIPS: Final = 40
#: connection-ttl's default, and a check period.
_DEAD_S: Final = 61.0


def rows() -> Iterator[Row]:
    """All of them."""
    for name, line in LINES.items():
        for size in (SMALL, MIDDLE, LARGE if line["rate"] >= _SLOW else LARGE_SLOW):
            for tls in (False, True):
                yield row(name, line, size, tls=tls)


def kafka_rows() -> Iterator[Row]:
    """All lines from a node to Kafka, but for records that take longer than a connection lasts."""
    for name, line in LINES.items():
        for size in (SMALL, MIDDLE, LARGE_KAFKA):
            every_s = line.get("reset_every_s", 0)
            if not every_s or size < line["rate"] * every_s / 2:
                yield replace(row(f"Kafka, {name}", line, size), begin_round_trips=_KAFKA_ROUND_TRIPS)


def row(
    name: str, line: Mapping[str, float], size: int, *, tls: bool = False, seconds: float = _ROW_S
) -> Row:
    """A row whose payload takes so many seconds on the line, or is one message."""
    count = max(1, round(line["rate"] * seconds / size))
    traffic = Traffic(_size(size), count, size)
    hole = "black hole" in name
    return Row(
        f"{name}, {traffic.name}{', TLS' if tls else ''}",
        traffic,
        line,
        tls=tls,
        swallow_after=traffic.payload // 3 if hole else None,
        dead_s=_DEAD_S if hole else 0.0,
    )


def _size(size: int) -> str:
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"
