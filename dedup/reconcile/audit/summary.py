"""The summary of an audit: a verdict, counts for each stream, and findings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

#: Findings in the summary; the Parquet table has all.
MAX_FINDINGS: Final = 10_000
#: Findings that the text shows.
SHOWN_FINDINGS: Final = 20
#: Kinds of findings, the worst first.
KINDS: Final = ("lost", "doubled", "unknown", "foreign", "out-of-order", "refused", "open")

Verdict = Literal["lost", "unknown", "clean"]


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """One source partition, in records."""

    stream: str
    topic: str
    partition: int
    target: str
    #: The offsets that were judged: ``[first, upto)``.
    first: int
    upto: int
    #: The bridge or the records say that the target covers everything below; None: nothing is known.
    covered: int | None
    #: Records of the source, and those of them whose ID the target has.
    source: int
    arrived: int
    lost: int = 0
    #: Copies too many at the target.
    doubled: int = 0
    unknown: int = 0
    foreign: int = 0
    out_of_order: int = 0
    refused: int = 0
    open: int = 0

    @property
    def is_unknown(self) -> bool:
        """Nothing has arrived and nothing says how far the target has come: perhaps nothing ever will."""
        return self.covered is None and self.arrived == 0 and self.source > self.refused


@dataclass(frozen=True, slots=True)
class Finding:
    """Neighbouring source positions with the same finding."""

    kind: str
    stream: str
    first: int
    last: int
    count: int
    id: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """One audit."""

    #: Empty: two ends were named instead.
    bridge: str
    streams: Sequence[StreamCounts]
    #: At most `MAX_FINDINGS`, the worst kinds first; `open` and `refused` ones too.
    findings: Sequence[Finding] = field(default=())
    #: Target records that no source record has anything to do with.
    others: int = 0

    def total(self, name: str) -> int:
        """The sum of one count over all streams."""
        return sum(getattr(stream, name) for stream in self.streams)

    @property
    def verdict(self) -> Verdict:
        """Out of order, refused and open records are findings, no verdict; but see `is_unknown`."""
        if self.total("lost") or self.total("doubled"):
            return "lost"
        if self.total("unknown") or self.total("foreign"):
            return "unknown"
        # Where nothing could be compared, nothing is proved.
        return "unknown" if not self.streams or any(one.is_unknown for one in self.streams) else "clean"

    def as_json(self) -> dict[str, Any]:
        """``summary.json``: keys in kebab-case."""
        return {
            "v": 1,
            "verdict": self.verdict,
            "bridge": self.bridge or None,
            "streams": [_kebab(asdict(stream)) for stream in self.streams],
            "others": self.others,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def as_text(self) -> str:
        """The text for a terminal: totals, the findings, and the verdict in the last line."""
        columns = [name.name for name in fields(StreamCounts)[7:]]
        lines = [_table(self.streams, columns)] if self.streams else ["no partition to audit"]
        names = {stream.stream: f"{stream.topic}/{stream.partition}" for stream in self.streams}
        lines += [_line(names, finding) for finding in self.findings[:SHOWN_FINDINGS]]
        more = len(self.findings) - SHOWN_FINDINGS
        if more > 0:
            lines.append(
                f"and {'at least ' if len(self.findings) == MAX_FINDINGS else ''}{more} findings more"
            )
        totals = " ".join(f"{name.replace('_', '-')} {self.total(name)}" for name in columns)
        return "\n".join([*lines, f"verdict {self.verdict} {totals}"])


def _kebab(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in values.items()}


def _line(names: Mapping[str, str], finding: Finding) -> str:
    """``lost: orders/2 17..19 (3)``."""
    where = str(finding.first) if finding.first == finding.last else f"{finding.first}..{finding.last}"
    said = f"{finding.kind}: {names.get(finding.stream, finding.stream)} {where} ({finding.count})"
    told = (finding.detail, f"ID {finding.id}" if finding.id else "")
    return "; ".join(filter(None, (said, *told)))


def _table(streams: Sequence[StreamCounts], columns: Sequence[str]) -> str:
    """A line a partition, right-aligned."""
    head = ["partition", *(name.replace("_", "-") for name in columns)]
    rows = [
        [f"{one.topic}/{one.partition} -> {one.target}", *(str(getattr(one, name)) for name in columns)]
        for one in streams
    ]
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *rows]
    )
