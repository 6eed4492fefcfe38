"""The report's page: one HTML file that needs no network and no script, the verdict first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dedup.reconcile import charts
from dedup.reconcile.finding_list import findings_section
from dedup.reconcile.markup import duration, escaped, moment, number, plural
from dedup.reconcile.page_tables import COUNTS, DECIDING, bridges_table, id_caches_table, inputs_table
from dedup.reconcile.rows import Facts, Flow
from dedup.reconcile.style import ICONS, LOGO, STYLE
from dedup.reconcile.summary import Summary, Verdict, headline, not_sent_yet
from dedup.reconcile.time_chart import delivery_times

#: Bridges with a time line of their own; where there are more, one stands for all.
MAX_TIME_LINES: Final = 4
#: Nothing is fetched and nothing runs, whatever a log smuggles in.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)

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


def page(facts: Facts, outcome: Summary, made: Made) -> str:
    """The whole page."""
    title = headline(outcome.verdict, facts.flows, facts.totals)
    findings = ("findings", "Findings", findings_section(facts, made.late_after_ms))
    graphs = [
        ("time-line", "Time line", _time_lines(facts)),
        ("delivery-time", "Delivery time", delivery_times(facts.latency)),
    ]
    sections = [
        ("bridges", "Bridges", bridges_table(facts.flows)),
        # What the verdict rests on comes before what is good to know.
        *([*graphs, findings] if outcome.verdict is Verdict.CLEAN else [findings, *graphs]),
        ("ids", "Duplicate IDs", id_caches_table(facts, outcome)),
        ("files", "Log files", inputs_table(facts)),
    ]
    shown = [(anchor, name, content) for anchor, name, content in sections if content]
    links = "".join(f'<li><a href="#{anchor}">{name}</a></li>' for anchor, name, _ in shown)
    body = "".join(
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{name}</h2>{content}</section>'
        for anchor, name, content in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{outcome.verdict.value}: {escaped(title)} – core bridge</title>"
        f"<style>{STYLE}</style></head>\n"
        '<body><a class="skip" href="#verdict">Skip to the verdict</a>'
        f'<header><div class="wide"><p class="brand">{LOGO}core bridge <span>reconciliation</span></p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></div></header>\n'
        f'<main class="wide">{_verdict(facts, outcome, title)}\n{body}</main>\n{_footer(made)}</body></html>'
    )


def _verdict(facts: Facts, outcome: Summary, title: str) -> str:
    tiles = "".join(
        _tile(name, sum(getattr(flow, column) for flow in facts.flows), tone)
        for column, name, tone in COUNTS[:DECIDING]
    )
    verdict = outcome.verdict.value
    compared = [flow for flow in facts.flows if flow.bridge is not None]
    sent, received = (sum(getattr(flow, side) for flow in compared) for side in ("sent", "received"))
    return (
        f'<section class="verdict {verdict}" id="verdict" aria-labelledby="headline" tabindex="-1">'
        f'{ICONS[verdict]}<div><p class="label">Verdict: <b>{verdict}</b></p>'
        f'<h1 id="headline">{escaped(title)}.</h1>'
        f"<p>{_MEANING[outcome.verdict]}{_doubt(outcome, facts)}</p>"
        f"{_not_sent_yet(facts)}"
        f'<p class="extent">{_extent(facts, compared)}</p></div></section>'
        f'<dl class="tiles">{_tile("Sent", sent, "")}{_tile("Received", received, "")}{tiles}</dl>'
    )


def _not_sent_yet(facts: Facts) -> str:
    """What waits, and how much of that no log can tell."""
    sentences = [f"{line[:1].upper()}{line[1:]}." for line in not_sent_yet(facts.flows)]
    return "".join(f"<p>{escaped(sentence)}</p>" for sentence in sentences)


def _doubt(outcome: Summary, facts: Facts) -> str:
    """What the headline does not say where messages are lost: of some others the logs do not say enough."""
    unknown = sum(flow.unknown + flow.unsent for flow in facts.flows)
    if outcome.verdict is not Verdict.LOST or not unknown:
        return ""
    return f" Of {number(unknown)} more the logs do not say enough."


def _extent(facts: Facts, compared: Sequence[Flow]) -> str:
    bridges = len({flow.bridge for flow in compared})
    files = plural(len(facts.inputs), "log file")
    parts = [f"{plural(bridges, 'bridge')} with {plural(len(compared), 'stream')} in {files}"]
    times = [ms for flow in facts.flows for ms in (flow.first_ms, flow.last_ms) if ms is not None]
    if times:
        first, last = (moment(ms) for ms in (min(times), max(times)))
        last = last.removeprefix(first[:11])
        times_told = [first, f"{last} UTC"] if first != last else [f"{first} UTC"]
        parts.append(" to ".join(f'<span class="when">{told}</span>' for told in times_told))
    return ", ".join(parts) + "."


def _tile(name: str, count: int, tone: str) -> str:
    return f'<div class="{tone if count else ""}"><dt>{name}</dt><dd>{number(count)}</dd></div>'


def _time_lines(facts: Facts) -> str:
    of_bridges = [hour for hour in facts.hours if hour.bridge is not None] or list(facts.hours)
    names = sorted({hour.bridge or "clients" for hour in of_bridges})
    if 1 <= len(names) <= MAX_TIME_LINES:
        figures = [
            charts.time_line(
                name, [hour for hour in of_bridges if (hour.bridge or "clients") == name], f"line-{place}"
            )
            for place, name in enumerate(names)
        ]
    else:
        figures = [charts.time_line(f"All {len(names)} bridges", of_bridges, "line-0")] if names else []
    return f'<div class="lines">{"".join(figures)}</div>' if figures else ""


def _footer(made: Made) -> str:
    version = f" {escaped(made.version)}" if made.version else ""
    is_never = made.late_after_ms < 0
    late = "No message counts as late." if is_never else f"Late means after {duration(made.late_after_ms)}."
    return (
        f'<footer><div class="wide"><p>Made {moment(made.at_ms)} UTC by core bridge{version}. '
        f"{late}</p>"
        "<p>No verdict uses a clock: a message is lost where the receiver’s log covers its position and does "
        "not have it. Times of events are of the clocks that wrote them.</p></div></footer>"
    )
