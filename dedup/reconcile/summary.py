"""The summary of a report: the verdict, `summary.json` as the contract has it, the terminal's text; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dedup.reconcile.log_names import holes
from dedup.reconcile.rows import KINDS, Facts, Finding, Flow, Total
from dedup.reconcile.text import moment, number, plural, visible

#: Version of `summary.json`.
VERSION: Final = 1
#: Findings that `summary.json` holds: ranges and IDs together. The Parquet table is complete.
MAX_FINDINGS: Final = 10_000
#: Flows that the terminal names, the worst first.
MAX_TOLD: Final = 10

#: A text on what the logs cannot show, and the command that shows it.
NOT_IN_LOGS: Final = (
    "no log tells what came later than its newest line, or what waits at a Kafka source or came over another "
    "bridge: core-bridge status does"
)

#: Stands in a stream's identity before the address of messages that a bridge has moved to its own log
#: (`bridge.messages.stream_names.own_log`).
_OWN_LOG: Final = re.compile(r":\$bridge\.[^/:]+/")

#: Keys of a bridge's counts in `summary.json`, and the columns they come from.
COUNTS: Final = (
    ("sent", "sent"),
    ("received", "received"),
    ("lost", "lost"),
    ("doubled", "doubled"),
    ("unsent", "unsent"),
    ("out-of-order", "out_of_order"),
    ("late", "late"),
    ("open", "open"),
    ("rejected", "rejected"),
    ("unknown", "unknown"),
)


class Verdict(StrEnum):
    """The verdict of a report. No verdict uses a clock."""

    #: Every message that was delivered, as far as the logs go; others may wait at their source.
    CLEAN = "clean"
    #: Messages are lost, or were delivered more than once.
    LOST = "lost"
    #: None is lost or doubled, as far as the logs go; for some messages they do not go far enough.
    UNKNOWN = "unknown"


#: The exit codes of `core-bridge reconcile`.
EXIT_CODES: Final = {Verdict.CLEAN: 0, Verdict.LOST: 3, Verdict.UNKNOWN: 4}


@dataclass(frozen=True, slots=True)
class Summary:
    """A report's outcome."""

    verdict: Verdict
    #: `summary.json`, in the contract's form.
    content: dict[str, Any]
    #: The text for a person, without the paths of the files: one line each, the verdict first.
    lines: tuple[str, ...]
    #: Messages of bridges that are still on the way: at their source, or sent and in no log of the target.
    waiting: int = 0

    @property
    def exit_code(self) -> int:
        """0 clean, 3 lost or doubled, 4 unknown."""
        return EXIT_CODES[self.verdict]


def summary(facts: Facts) -> Summary:
    """The outcome of these facts."""
    missing = holes(found.path for found in facts.inputs)
    outcome = verdict(facts.flows, facts.totals, is_whole=not (missing or unread_files(facts)))
    content = {
        "v": VERSION,
        "verdict": outcome.value,
        "bridges": [_bridge(flow) for flow in facts.flows],
        "findings": grouped(facts.findings),
        "inputs": [
            {"path": found.path, "sha256": found.sha256, "lines": found.lines} for found in facts.inputs
        ],
        "left-out": list(facts.left_out),
        "missing": [{"node": one.node, "numbers": [one.first, one.last]} for one in missing],
        "id-cache-size-needed": max((cache.needed for cache in facts.id_caches), default=0),
        "waiting": [_waiting(flow) for flow in facts.flows if flow.bridge is not None],
        "unread": [_unread(flow) for flow in unread(facts.flows)],
    }
    waiting = sum(flow.waiting + flow.open for flow in facts.flows)
    return Summary(outcome, content, tuple(_told(outcome, facts)), waiting)


def verdict(flows: Iterable[Flow], totals: Iterable[Total], *, is_whole: bool = True) -> Verdict:
    """`LOST` where a message is lost or doubled, else `UNKNOWN` where one cannot be judged, else `CLEAN`.

    A producer's ID that was accepted twice counts as doubled. `is_whole`: False: files are missing or were
    not read, so there may be messages of which nothing is known.
    """
    flows = list(flows)
    twice = any(total.kind == "repeated-id" and total.findings for total in totals)
    if twice or any(flow.lost or flow.doubled for flow in flows):
        return Verdict.LOST
    if not is_whole or any(flow.unknown or flow.unsent for flow in flows):
        return Verdict.UNKNOWN
    return Verdict.CLEAN


def unread_files(facts: Facts) -> bool:
    """Whether files were not read, or none of those that were holds a line."""
    return bool(facts.left_out) or not any(found.lines for found in facts.inputs)


def grouped(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """At most `MAX_FINDINGS`, the gravest first; those of one kind, flow and address are one entry."""
    groups: dict[tuple[object, ...], dict[str, Any]] = {}
    for found in gravest_first(findings)[:MAX_FINDINGS]:
        key = (found.kind, found.bridge, found.stream, found.store, found.address)
        entry = groups.setdefault(
            key, {"kind": found.kind, "stream": found.stream, "positions": [], "ids": []}
        )
        if found.first is not None:
            entry["positions"].append([found.first, found.last])
        if found.id is not None:
            entry["ids"].append(found.id)
    return list(groups.values())


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by kind as `KINDS` has them, then by flow and position."""

    def place(found: Finding) -> tuple[object, ...]:
        return (
            KINDS.index(found.kind),
            found.bridge or "",
            found.stream or "",
            found.store,
            -1 if found.first is None else found.first,
            found.id or "",
        )

    return sorted(findings, key=place)


def headline(outcome: Verdict, flows: Sequence[Flow], totals: Sequence[Total]) -> str:
    """The verdict as a sentence, such as ``24 messages are lost, 2 doubled``."""
    if outcome is Verdict.LOST:
        lost, doubled = (sum(getattr(flow, name) for flow in flows) for name in ("lost", "doubled"))
        # Where an ID came twice over two flows, no flow alone has a message doubled.
        doubled = doubled or sum(total.findings for total in totals if total.kind == "repeated-id")
        parts = [f"{_messages(lost)} lost"] if lost else []
        if doubled:
            parts.append(f"{number(doubled)} doubled" if lost else f"{_messages(doubled)} doubled")
        return ", ".join(parts)
    if outcome is Verdict.UNKNOWN:
        unknown = sum(flow.unknown + flow.unsent for flow in flows)
        if not unknown:
            return "Nothing is known to be lost; but files of the logs are missing, empty, or were not read"
        return f"Nothing is known to be lost; the logs leave {number(unknown)} open to doubt"
    if not any(flow.sent or flow.received for flow in flows):
        return "The logs hold no messages"
    waiting = sum(flow.waiting + flow.open for flow in flows)
    if waiting:
        return f"Every message that was delivered is accounted for; {_messages(waiting)} still on the way"
    return "Every message that the logs tell of is accounted for"


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{number(count)} messages are"


def _bridge(flow: Flow) -> dict[str, Any]:
    counts = {key: getattr(flow, column) for key, column in COUNTS}
    return {"bridge": flow.bridge, "stream": flow.stream, "address": flow.address} | counts


def _waiting(flow: Flow) -> dict[str, Any]:
    return {
        "bridge": flow.bridge,
        "stream": flow.stream,
        "address": flow.address,
        "waiting": flow.waiting,
        "since": flow.waiting_since_ms,
        "newest-sent": flow.sent_ms,
    }


def _unread(flow: Flow) -> dict[str, Any]:
    return {"stream": flow.stream, "address": flow.address, "node": flow.target, "messages": flow.received}


def unread(flows: Sequence[Flow]) -> list[Flow]:
    """Clients' messages to streams of which no bridge has a line: no log shows whether one reads them."""
    read = {flow.stream for flow in flows if flow.bridge is not None}
    return [flow for flow in flows if flow.bridge is None and flow.received and flow.stream not in read]


def _place(stream: str) -> str:
    """The journal and the address whose messages a stream has: what a bridge has taken out of a shared queue
    is a stream of the bridge's own log.
    """
    return _OWN_LOG.sub(":", stream.rpartition(":")[0], count=1)


def not_sent_yet(flows: Sequence[Flow]) -> Iterable[str]:
    """The messages that wait at their source, since when, and what no log shows of them; each a sentence."""
    bridges = sorted(by_bridge(flow for flow in flows if flow.bridge is not None).items(), key=_most_waiting)
    for name, of_bridge in bridges[:MAX_TOLD]:
        count = sum(flow.waiting for flow in of_bridge)
        if count:
            since = min((ms for flow in of_bridge if (ms := flow.waiting_since_ms) is not None), default=None)
            sent = max((ms for flow in of_bridge if (ms := flow.sent_ms) is not None), default=None)
            first = f", the first since {moment(since)} UTC" if since is not None else ""
            newest = f"is of {moment(sent)} UTC" if sent is not None else "has no time"
            yield (
                f"{_messages(count)} waiting at the source of bridge {visible(name or '')}{first}; "
                f"its newest sent line {newest}"
            )
    shared = {_place(flow.stream) for flow in flows if flow.bridge is not None}
    others = unread(flows)
    if of_nobody := [flow for flow in others if _place(flow.stream) not in shared]:
        yield f"of {_sends(of_nobody)} no log says that a bridge has sent any"
    if of_many := [flow for flow in others if _place(flow.stream) in shared]:
        yield f"of {_sends(of_many)} bridges share a queue with readers: no log says which are left there"
    if bridges or others:
        yield NOT_IN_LOGS


def _sends(flows: Sequence[Flow]) -> str:
    addresses = sorted({f"{visible(flow.address)} at {visible(flow.target)}" for flow in flows})
    named = ", ".join(addresses[:MAX_TOLD]) + (" and others" if len(addresses) > MAX_TOLD else "")
    return f"{plural(sum(flow.received for flow in flows), 'message')} that clients sent to {named}"


def _most_waiting(item: tuple[str | None, list[Flow]]) -> tuple[int, str]:
    return -sum(flow.waiting for flow in item[1]), item[0] or ""


def _told(outcome: Verdict, facts: Facts) -> Iterable[str]:
    yield f"{outcome.value}: {headline(outcome, facts.flows, facts.totals)}"
    bridges = sorted(by_bridge(facts.flows).items(), key=lambda item: (-_gravity(item[1]), item[0] or ""))
    for name, flows in bridges[:MAX_TOLD]:
        counts = {key: sum(getattr(flow, column) for flow in flows) for key, column in COUNTS}
        counts["waiting"] = sum(flow.waiting for flow in flows)
        kept = {
            key: count
            for key, count in counts.items()
            if count or key in {"sent", "received", "lost", "doubled"}
        }
        who = "clients" if name is None else f"bridge {visible(name)}"
        if name is None:
            kept = {"received": counts["received"], "rejected": counts["rejected"]}
        yield f"{who} " + " ".join(f"{key} {count}" for key, count in kept.items())
    if len(bridges) > MAX_TOLD:
        yield f"and {len(bridges) - MAX_TOLD} more bridges"
    yield from not_sent_yet(facts.flows)
    yield from not_whole(facts)
    unreadable = sum(found.unreadable for found in facts.inputs)
    if unreadable:
        files = sum(1 for found in facts.inputs if found.unreadable)
        yield f"{unreadable} lines in {files} of {len(facts.inputs)} files could not be read"


def not_whole(facts: Facts) -> Iterable[str]:
    """The files that are missing, empty or were not read; each a sentence."""
    if facts.left_out:
        names = ", ".join(visible(path) for path in facts.left_out[:MAX_TOLD])
        more = f" and {len(facts.left_out) - MAX_TOLD} more" if len(facts.left_out) > MAX_TOLD else ""
        yield f"not read, because of their endings: {names}{more}"
    missing = holes(found.path for found in facts.inputs)
    for one in missing[:MAX_TOLD]:
        numbers = f"{one.first}" if one.first == one.last else f"{one.first} to {one.last}"
        yield f"missing between the files of node {visible(one.node)}: {numbers}"
    if len(missing) > MAX_TOLD:
        yield f"and {len(missing) - MAX_TOLD} more gaps between files"
    if not any(found.lines for found in facts.inputs):
        yield "none of the files holds a line"


def by_bridge(flows: Iterable[Flow]) -> dict[str | None, list[Flow]]:
    """The flows of each bridge, in the given order."""
    bridges: dict[str | None, list[Flow]] = {}
    for flow in flows:
        bridges.setdefault(flow.bridge, []).append(flow)
    return bridges


def _gravity(flows: Iterable[Flow]) -> int:
    return sum(1000 * (flow.lost + flow.doubled) + flow.unknown + flow.unsent for flow in flows)
