"""Delivery-log lines of Kafka lanes: confirmed batches, and what a transaction stored. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bridge import delivery_log
from bridge.delivery_log.line_writer import LineWriter
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
    stream = covered.stream
    return delivery_log.line(
        side="received", node=writer.node, node_id=writer.node_id, bridge=writer.bridge, lane=writer.lane,
        stream=stream.identity, address=stream.target_address, target=writer.target, store=writer.store,
        from_=covered.from_, upto=covered.upto, runs=run_arithmetic.join(covered.runs),
        refused=covered.refused, ids=covered.ids if ids else (), events=covered.events, committed=now_ms,
        duplicates=len(covered.known), recovered=False,
        known=run_arithmetic.join((position, position) for position in covered.known),
        unchecked=ids and covered.unchecked and bool(covered.ids),
    ).decode()  # fmt: skip


def _rejected(covered: Covered, writer: LineWriter, now_ms: int) -> str:
    """The line of known IDs. It covers what the line before covers, so as to differ from another one's."""
    stream = covered.stream
    return delivery_log.line(
        side="received", node=writer.node, node_id=writer.node_id, bridge=writer.bridge, lane=writer.lane,
        stream=stream.identity, address=stream.target_address, target=writer.target, store=writer.store,
        from_=covered.from_, upto=covered.upto, runs=(), refused=(),
        ids=[(None, value) for value in covered.rejected], events=covered.events, committed=now_ms,
        duplicates=len(covered.rejected), recovered=False, verdict="duplicate",
    ).decode()  # fmt: skip
