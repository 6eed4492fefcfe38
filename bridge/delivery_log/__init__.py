"""The delivery log: one JSON line a batch, and the files that hold the lines (design section 7).

A `Line` is encoded in the transaction that it describes, which stores it (the journal's outbox). Later
`SegmentWriter.write` brings it to disk, and only then the outbox deletes it. A crash in between writes it
again: equal lines are one event, so this does no harm.
"""

from bridge.delivery_log.gathering import GatheringWriter, WriteLines
from bridge.delivery_log.lines import MISSING, VERSION, Line, LineWriter, Session, is_whole
from bridge.delivery_log.log_thread import LogThread
from bridge.delivery_log.segments import CLOSED, OPEN, UNLIMITED, SegmentLimits, SegmentWriter
from bridge.delivery_log.tail import Tail

__all__ = [
    "CLOSED",
    "MISSING",
    "OPEN",
    "UNLIMITED",
    "VERSION",
    "GatheringWriter",
    "Line",
    "LineWriter",
    "LogThread",
    "SegmentLimits",
    "SegmentWriter",
    "Session",
    "Tail",
    "WriteLines",
    "is_whole",
]
