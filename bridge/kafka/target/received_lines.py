"""Delivery-log lines of Kafka lanes: confirmed batches, and what a transaction stored. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bridge.delivery_log import Line, LineWriter
from bridge.kafka.journal_topic.records import DEFAULT_BATCH_BYTES, RESERVED_BYTES
from bridge.kafka.target.coverage import Covered
from bridge.messages import positions as run_arithmetic

#: Most bytes of lines as the record of a stream holds them: a text within JSON. Longer lines are stored
#: without their IDs, so that the taker of a lane has less to read.
MOST_CARRIED_BYTES: Final = 768 * 1024


def received_lines(
    covered: Covered, writer: LineWriter, now_ms: int, most_bytes: int = DEFAULT_BATCH_BYTES
) -> tuple[Sequence[str], str]:
    """The lines for a transaction's coverage of one stream; and the lines that its record is to carry.

    A second line names the producers' IDs that were known, as on a node: the first one has those that were
    accepted, and all positions. A record carries both with a newline between. Lines too long for it are
    carried without IDs, or not at all: then the log lacks them if the process dies before it is written.
    `most_bytes`: of a record batch that the journal topic takes.
    """
    most = min(MOST_CARRIED_BYTES, most_bytes - RESERVED_BYTES)
    if covered.upto == covered.from_:
        return (), ""
    lines = [_received(covered, writer, now_ms)]
    if covered.rejected:
        lines.append(_rejected(covered, writer, now_ms))
    together = "\n".join(lines)
    if _size(together) <= most:
        return lines, together
    bare = _received(covered, writer, now_ms, ids=False)
    return lines, bare if _size(bare) <= most else ""


def _size(text: str) -> int:
    """The bytes of a text within JSON."""
    return len(msgspec.json.encode(text))


def _received(covered: Covered, writer: LineWriter, now_ms: int, *, ids: bool = True) -> str:
    line = _line(covered, writer, now_ms, len(covered.known))
    line.runs, line.refused = run_arithmetic.join(covered.runs), covered.refused
    line.known = run_arithmetic.join((position, position) for position in covered.known)
    if ids:
        line.ids, line.unchecked = covered.ids, covered.unchecked and bool(covered.ids)
    return line.encode().decode()


def _rejected(covered: Covered, writer: LineWriter, now_ms: int) -> str:
    """The line of known IDs. It covers what the line before covers, so as to differ from another one's."""
    line = _line(covered, writer, now_ms, len(covered.rejected))
    line.ids, line.verdict = [(None, value) for value in covered.rejected], "duplicate"
    return line.encode().decode()


def _line(covered: Covered, writer: LineWriter, now_ms: int, duplicates: int) -> Line:
    """A line about the coverage of a stream, without positions and IDs of messages."""
    stream = covered.stream
    return Line(
        side="received", writer=writer, stream=stream.identity, address=stream.target_address,
        from_=covered.from_, upto=covered.upto, events=covered.events, committed=now_ms,
        duplicates=duplicates,
    )  # fmt: skip
