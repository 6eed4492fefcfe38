"""The alerts of docs/operations.md, evaluated on a node's metrics while their fault is there.

with fires("BridgeNotConnected", edge, bridge="orders-to-hub"):
    hub.kill()
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.harness.eventually import PATIENCE_S, eventually
from tests.harness.node import Node
from tests.harness.promql import Scrape, Vector, evaluate, longest_range_s

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "operations.md"
_HEAD: Final = "\n| alert | expression | for | because |\n|---|---|---|---|\n"
_ROW: Final = re.compile(r"^\| (\w+) \| `([^`]+)` \| (\d+[mh]) \| .+ \|$", re.MULTILINE)
#: `fires(instead=...)` for BridgeBehind: half a second in place of five minutes.
HALF_A_SECOND: Final = ("> 300", "> 0.5")
#: Scrapes in a row that an alert with a time must hold for: its series does not come and go. They take longer
#: than two attempts to connect.
HELD_SCRAPES: Final = 40


@dataclass(frozen=True, slots=True)
class Alert:
    """One row of the table."""

    name: str
    expression: str
    #: Whether it must hold for some time.
    lasts: bool


@cache
def alerts() -> dict[str, Alert]:
    """Every alert of the document, by name."""
    _, after = DOCUMENT.read_text("utf-8").split(_HEAD)
    rows = after.split("\n\n")[0].splitlines()
    found = [row for line in rows if (row := _ROW.fullmatch(line))]
    assert len(found) == len(rows), [line for line in rows if not _ROW.fullmatch(line)]
    return {row[1]: Alert(row[1], row[2], row[3] != "0m") for row in found}


def scraped(node: Node) -> Scrape:
    """What the node's metrics are now."""
    return Scrape.of(time.time(), node.metrics())


def firing(alert: Alert, *scrapes: Scrape, later_s: float = 0) -> Vector:
    """The series for which it fires, `later_s` after the last of the scrapes, which are in their order.

    The earlier ones count as the first of the alert's range, a second apart, so that an hour need not pass.
    """
    now_s = scrapes[-1].at_s + later_s
    begin_s = now_s - longest_range_s(alert.expression)
    early = [Scrape(begin_s + number, scrape.vectors) for number, scrape in enumerate(scrapes[:-1])]
    value = evaluate(alert.expression, [*early, scrapes[-1]], now_s)
    assert not isinstance(value, float)
    return value


@contextlib.contextmanager
def fires(
    name: str,
    node: Node,
    *,
    instead: tuple[str, str] = ("", ""),
    later_s: float = 0,
    within_s: float = PATIENCE_S,
    **labels: str,
) -> Iterator[None]:
    """The alert is quiet before the body, and fires for a series with these labels after it.

    Args:
        instead: a part of its expression, and what the test has in its place, such as a shorter time.
        later_s: how much later it is evaluated than the metrics are read.
    """
    alert = alerts()[name]
    if instead[0]:
        assert alert.expression.count(instead[0]) == 1, alert.expression
        alert = Alert(name, alert.expression.replace(*instead), alert.lasts)
    before = scraped(node)
    quiet = not firing(alert, before, scraped(node), later_s=later_s)
    assert quiet, f"{name} fires before its fault is there"
    yield

    def look() -> bool:
        found = firing(alert, before, scraped(node), later_s=later_s)
        return any(labels.items() <= dict(series).items() for series in found)

    eventually(look, f"{name} fires for {labels}", within_s)
    for _ in range(HELD_SCRAPES if alert.lasts else 0):
        assert look(), f"{name} fires, and then it does not"
