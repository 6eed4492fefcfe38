"""The report's page: one HTML file that needs no network and no script, the verdict first.

The modules beside put together what it says; how it looks is in `templates/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dedup.reconcile import text
from dedup.reconcile.charts import TimeLine, time_line
from dedup.reconcile.finding_list import found_kinds
from dedup.reconcile.page_tables import (
    COUNTS,
    DECIDING,
    bridges_table,
    id_caches_table,
    inputs_table,
    streams_table,
)
from dedup.reconcile.rows import Facts, Flow
from dedup.reconcile.summary import Summary, Verdict, headline, not_sent_yet, not_whole
from dedup.reconcile.text import moment, number, plural
from dedup.reconcile.time_chart import delivery_times

#: Bridges with a time line of their own; where there are more, one stands for all.
MAX_TIME_LINES: Final = 4
_MEANING: Final = {
    Verdict.CLEAN: "What one side’s log says was sent, the other side has, once.",
    Verdict.LOST: "The findings name each of them, with its position.",
    Verdict.UNKNOWN: "Lines of a log are missing. Add the missing files and reconcile again.",
}


@dataclass(frozen=True, slots=True)
class Made:
    """When and how a report was made."""

    #: ms since the epoch.
    at_ms: int
    #: Of core-bridge; empty where it is not installed.
    version: str
    late_after_ms: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that stands out where it is not 0."""

    name: str
    count: int
    #: ``bad``, ``warn``, ``note`` or nothing.
    tone: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; `anchor` is the name of its template, too."""

    anchor: str
    name: str


def page(facts: Facts, outcome: Summary, made: Made) -> str:
    """The whole page."""
    parts = {
        "time_lines": _time_lines(facts),
        "delivery_times": delivery_times(facts.latency),
        "findings": found_kinds(facts, made.late_after_ms),
    }
    graphs = [
        *([Section("time-line", "Time line")] if parts["time_lines"] else []),
        *([Section("delivery-time", "Delivery time")] if parts["delivery_times"] else []),
    ]
    findings = Section("findings", "Findings")
    sections = [
        Section("bridges", "Bridges"),
        # The basis of the verdict comes before further information.
        *([*graphs, findings] if outcome.verdict is Verdict.CLEAN else [findings, *graphs]),
        *([Section("ids", "Duplicate IDs")] if facts.id_caches else []),
        Section("files", "Log files"),
    ]
    compared = [flow for flow in facts.flows if flow.bridge is not None]
    return (
        _templates()
        .get_template("page.html")
        .render(
            parts,
            made=made,
            verdict=outcome.verdict.value,
            headline=headline(outcome.verdict, facts.flows, facts.totals),
            meaning=_MEANING[outcome.verdict] + _doubt(outcome, facts),
            not_sent_yet=_sentences(not_sent_yet(facts.flows)),
            not_whole=_sentences(not_whole(facts)),
            extent=_extent(facts, compared),
            times=_times(facts),
            tiles=_tiles(facts, compared),
            sections=sections,
            bridges=bridges_table(facts.flows),
            streams=streams_table(facts.flows),
            ids={
                "needed": outcome.content["id-cache-size-needed"],
                "table": id_caches_table(facts.id_caches),
            },
            files=inputs_table(facts.inputs),
        )
    )


@cache
def _templates() -> Environment:
    """They are read with the package's own loader: on a cluster the package is a zip file."""
    environment = Environment(
        loader=PackageLoader("dedup.reconcile"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for form in (text.number, text.plural, text.moment, text.duration):
        environment.filters[form.__name__] = form
    return environment


def _shown(value: object) -> str:
    """Any value as a template writes it: invisible characters are shown; then it is escaped."""
    return value if isinstance(value, Markup) else text.visible(str(value))


def _sentences(lines: Iterable[str]) -> list[str]:
    return [f"{line[:1].upper()}{line[1:]}." for line in lines]


def _tiles(facts: Facts, compared: Sequence[Flow]) -> list[Tile]:
    sides = [
        Tile("Sent", sum(flow.sent for flow in compared), ""),
        Tile("Received", sum(flow.received for flow in compared), ""),
    ]
    deciding = [
        Tile(name, sum(getattr(flow, column) for flow in facts.flows), tone)
        for column, name, tone in COUNTS[:DECIDING]
    ]
    return [*sides, *deciding, Tile("Waiting", sum(flow.waiting + flow.open for flow in compared), "note")]


def _doubt(outcome: Summary, facts: Facts) -> str:
    """The addition to the headline where messages are lost: for some others the logs do not suffice."""
    unknown = sum(flow.unknown + flow.unsent for flow in facts.flows)
    if outcome.verdict is not Verdict.LOST or not unknown:
        return ""
    return f" Of {number(unknown)} more the logs do not say enough."


def _extent(facts: Facts, compared: Sequence[Flow]) -> str:
    bridges = len({flow.bridge for flow in compared})
    files = plural(len(facts.inputs), "log file")
    return f"{plural(bridges, 'bridge')} with {plural(len(compared), 'stream')} in {files}"


def _times(facts: Facts) -> list[str]:
    """The time of the first and the last event, or of the only one; the day once, and the zone at the end."""
    times = [ms for flow in facts.flows for ms in (flow.first_ms, flow.last_ms) if ms is not None]
    if not times:
        return []
    first, last = moment(min(times)), moment(max(times))
    return [f"{first} UTC"] if first == last else [first, f"{last.removeprefix(first[:11])} UTC"]


def _time_lines(facts: Facts) -> list[TimeLine]:
    of_bridges = [hour for hour in facts.hours if hour.bridge is not None] or list(facts.hours)
    names = sorted({hour.bridge or "clients" for hour in of_bridges})
    if len(names) > MAX_TIME_LINES:
        return [time_line(f"All {len(names)} bridges", of_bridges)]
    return [
        time_line(name, [hour for hour in of_bridges if (hour.bridge or "clients") == name]) for name in names
    ]
