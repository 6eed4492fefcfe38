"""The page's tables of bridges, of duplicate IDs and of log files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dedup.reconcile.markup import escaped, number, plural
from dedup.reconcile.rows import Facts, Flow
from dedup.reconcile.summary import Summary, by_bridge
from dedup.reconcile.tabular import NOTHING, Cell, Column, Markup, table

#: Rows of the streams' and of the files' table; the Parquet tables have all.
MAX_STREAMS: Final = 200
MAX_INPUTS: Final = 200
#: Files up to which the table is unfolded.
MAX_OPEN_INPUTS: Final = 8
#: What is counted, the verdicts' four first: column of a flow, title, tone where it is not 0.
COUNTS: Final = (
    ("lost", "Lost", "bad"),
    ("doubled", "Doubled", "bad"),
    ("unsent", "Unsent", "warn"),
    ("unknown", "Unknown", "warn"),
    ("out_of_order", "Out of order", "note"),
    ("open", "Open", "note"),
    ("late", "Late", "note"),
    ("refused", "Refused", "note"),
    ("rejected", "Rejected", "note"),
)
#: How many of them, from the first on, a verdict rests on.
DECIDING: Final = 4


def bridges_table(flows: Sequence[Flow]) -> str:
    """A row for each bridge, then a row for each of its streams, folded."""
    if not flows:
        return '<p class="card">No bridge has a line in these logs.</p>'
    columns = (
        Column("Bridge", header=True),
        Column("Address"),
        Column("Sent", numeric=True),
        Column("Received", numeric=True),
        *(Column(name, numeric=True, tone=tone) for _, name, tone in COUNTS),
    )
    rows = [
        (_name(bridge), _addresses(of_bridge), *_counts(of_bridge))
        for bridge, of_bridge in by_bridge(flows).items()
    ]
    streams = (
        Column("Bridge", header=True),
        Column("Stream", code=True),
        Column("Store", code=True),
        *columns[1:],
    )
    worst = sorted(flows, key=lambda flow: -sum(getattr(flow, column) for column, _, _ in COUNTS[:DECIDING]))
    by_stream = [
        (_name(flow.bridge), flow.stream, flow.store, flow.address, *_counts([flow]))
        for flow in worst[:MAX_STREAMS]
    ]
    cut = f"<p>The {MAX_STREAMS} worst of {number(len(flows))}; all are in <code>flows/</code>.</p>"
    return (
        f'<div class="card">{table("Messages of each bridge", columns, rows, kind="cards")}'
        f"<details><summary>{plural(len(flows), 'stream')}</summary>{cut if len(flows) > MAX_STREAMS else ''}"
        f"{table('Messages of each stream', streams, by_stream, kind='cards')}</details></div>"
    )


def _name(bridge: str | None) -> Cell:
    return Markup('clients <span class="quiet">(not compared)</span>') if bridge is None else bridge


def _addresses(flows: Iterable[Flow]) -> Cell:
    """Addresses, with the target where it has another name."""
    names = sorted({(flow.address, flow.target if flow.bridge is not None else "") for flow in flows})
    shown = [
        f"{escaped(address)}"
        + (f' <span class="quiet">→ {escaped(target)}</span>' if target not in ("", address) else "")
        for address, target in names[:3]
    ]
    more = [f'<span class="quiet">and {len(names) - 3} more</span>'] if len(names) > 3 else []
    return Markup("<br>".join([*shown, *more]))


def _counts(flows: Sequence[Flow]) -> list[Cell]:
    """The cells of a row; what is not compared has no number."""
    compared = any(flow.bridge is not None for flow in flows)
    known = {"received", "rejected", "doubled"}
    return [
        number(sum(getattr(flow, column) for flow in flows)) if compared or column in known else NOTHING
        for column in ("sent", "received", *(column for column, _, _ in COUNTS))
    ]


def id_caches_table(facts: Facts, outcome: Summary) -> str:
    """How far back IDs came again, and the cache that would have known them; empty where none are checked."""
    if not facts.id_caches:
        return ""
    needed = outcome.content["id-cache-size-needed"]
    told = (
        f"An <code>id-cache-size</code> of <b>{number(needed)}</b> would have known every ID that came again."
        if needed
        else "No producer’s ID came again."
    )
    columns = (
        Column("Address", header=True),
        Column("Store", code=True),
        *(Column(name, numeric=True) for name in ("Accepted", "Came again", "Size needed")),
    )
    rows = [
        (cache.address, cache.store, number(cache.accepted), number(cache.repeated), number(cache.needed))
        for cache in sorted(facts.id_caches, key=lambda cache: -cache.needed)[:MAX_STREAMS]
    ]
    caches = table("Duplicate IDs of each address", columns, rows, kind="cards")
    return f'<div class="card"><p>{told}</p>{caches}</div>'


def inputs_table(facts: Facts) -> str:
    """What was read, the worst files first."""
    columns = (
        Column("File", header=True, code=True),
        Column("Lines", numeric=True),
        Column("Unreadable", numeric=True, tone="warn"),
        Column("SHA-256", code=True),
    )
    rows = [
        (found.path, number(found.lines), number(found.unreadable), found.sha256)
        for found in sorted(facts.inputs, key=lambda found: -found.unreadable)[:MAX_INPUTS]
    ]
    cut = (
        f"<p>The first {MAX_INPUTS} of {number(len(facts.inputs))}; all are in <code>summary.json</code>.</p>"
    )
    opened = " open" if len(facts.inputs) <= MAX_OPEN_INPUTS else ""
    return (
        f'<div class="card">{cut if len(facts.inputs) > MAX_INPUTS else ""}'
        f"<details{opened}><summary>{plural(len(facts.inputs), 'file')}</summary>"
        f"{table('Log files that were read', columns, rows, kind='cards')}</details>"
        '<p class="quiet"><code>core-bridge reconcile --verify</code> says whether these files, and this '
        "report, are still the same.</p></div>"
    )
