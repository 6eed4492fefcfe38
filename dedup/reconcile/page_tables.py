"""The page's tables of bridges, of duplicate IDs and of log files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dedup.reconcile.rows import Flow, IdCache, Input
from dedup.reconcile.summary import by_bridge
from dedup.reconcile.tabular import NOTHING, Cell, Column, Line, Table
from dedup.reconcile.text import number

#: Rows of the streams' and of the files' table; the Parquet tables have all.
MAX_STREAMS: Final = 200
MAX_INPUTS: Final = 200
#: Addresses of a bridge that its row names.
MAX_ADDRESSES: Final = 3
#: Files up to which the table is unfolded.
MAX_OPEN_INPUTS: Final = 8
#: The counts, the verdicts' four first: column of a flow, title, tone where it is not 0.
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
#: Number of those, from the first on, on which a verdict is based.
DECIDING: Final = 4


_NUMBERS: Final = (
    Column("Sent", numeric=True),
    Column("Received", numeric=True),
    *(Column(name, numeric=True, tone=tone) for _, name, tone in COUNTS),
)


@dataclass(frozen=True, slots=True)
class Cut:
    """The first rows of a table, and the total number of rows."""

    table: Table
    count: int
    #: Whether it is unfolded.
    is_open: bool = False


def bridges_table(flows: Sequence[Flow]) -> Table:
    """A row for each bridge."""
    rows = [
        (_name(bridge), _addresses(of_bridge), *_counts(of_bridge))
        for bridge, of_bridge in by_bridge(flows).items()
    ]
    return Table(
        "Messages of each bridge", (Column("Bridge", header=True), Column("Address"), *_NUMBERS), rows
    )


def streams_table(flows: Sequence[Flow]) -> Cut:
    """A row for each stream of each bridge, the worst first."""
    columns = (
        Column("Bridge", header=True),
        Column("Stream", code=True),
        Column("Store", code=True),
        Column("Address"),
        *_NUMBERS,
    )
    worst = sorted(flows, key=lambda flow: -sum(getattr(flow, column) for column, _, _ in COUNTS[:DECIDING]))
    rows = [
        (_name(flow.bridge), flow.stream, flow.store, flow.address, *_counts([flow]))
        for flow in worst[:MAX_STREAMS]
    ]
    return Cut(Table("Messages of each stream", columns, rows), len(flows))


def _name(bridge: str | None) -> Cell:
    return (Line("clients", "(not compared)"),) if bridge is None else bridge


def _addresses(flows: Iterable[Flow]) -> Cell:
    """Addresses, with the target where it has another name."""
    names = sorted({(flow.address, flow.target if flow.bridge is not None else "") for flow in flows})
    lines = [
        Line(address, f"→ {target}" if target not in ("", address) else "")
        for address, target in names[:MAX_ADDRESSES]
    ]
    more = len(names) - MAX_ADDRESSES
    return [*lines, Line("", f"and {more} more")] if more > 0 else lines


def _counts(flows: Sequence[Flow]) -> list[Cell]:
    """The cells of a row; a count that is not compared has no number."""
    compared = any(flow.bridge is not None for flow in flows)
    known = {"received", "rejected", "doubled"}
    return [
        number(sum(getattr(flow, column) for flow in flows)) if compared or column in known else NOTHING
        for column in ("sent", "received", *(column for column, _, _ in COUNTS))
    ]


def id_caches_table(caches: Sequence[IdCache]) -> Table:
    """The distances of repeated IDs, and the cache sizes that would have known them; the largest first."""
    columns = (
        Column("Address", header=True),
        Column("Store", code=True),
        *(Column(name, numeric=True) for name in ("Accepted", "Came again", "Size needed")),
    )
    rows = [
        (cache.address, cache.store, number(cache.accepted), number(cache.repeated), number(cache.needed))
        for cache in sorted(caches, key=lambda cache: -cache.needed)[:MAX_STREAMS]
    ]
    return Table("Duplicate IDs of each address", columns, rows)


def inputs_table(inputs: Sequence[Input]) -> Cut:
    """The log files that were read, the worst first."""
    columns = (
        Column("File", header=True, code=True),
        Column("Lines", numeric=True),
        Column("Unreadable", numeric=True, tone="warn"),
        Column("SHA-256", code=True),
    )
    rows = [
        (found.path, number(found.lines), number(found.unreadable), found.sha256)
        for found in sorted(inputs, key=lambda found: -found.unreadable)[:MAX_INPUTS]
    ]
    table = Table("Log files that were read", columns, rows)
    return Cut(table, len(inputs), is_open=len(inputs) <= MAX_OPEN_INPUTS)
