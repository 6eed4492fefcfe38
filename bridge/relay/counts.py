"""The counts of a bridge, as metrics and status show them."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.messages.batch import Batch


@dataclass(slots=True)
class Traffic:
    """Bytes of batches and large bodies over links to or from other nodes, those sent again too."""

    #: As frames of the link.
    frame_bytes: int = 0
    #: As they went over the line: compressed where that paid.
    wire_bytes: int = 0

    def count(self, frame_bytes: int, wire_bytes: int) -> None:
        """Add one frame."""
        self.frame_bytes += frame_bytes
        self.wire_bytes += wire_bytes


@dataclass(slots=True)
class Counts(Traffic):
    """The counts of a bridge, or of one of its lanes, since the node started."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    #: Messages that the target dropped: covered before, or with a producer's ID that it knows.
    replayed: int = 0
    #: Those with a producer's ID that the target knows, unless it is a node, which counts them itself.
    repeated: int = 0
    #: Messages that were sent in vain: their batch was not taken, or an opening after the connection that
    #: sent them found that the target does not have them; or the target itself had to write them again.
    resent: int = 0
    #: Their bytes; of what the target itself writes again they are not known.
    resent_bytes: int = 0
    #: Messages that the bridge's filter left out, where the target covers their positions: what is read again
    #: after the loss of a connection counts once.
    filtered: int = 0
    #: Those of them for which the condition could not be evaluated (Artemis logs AMQ224006 for each).
    not_evaluated: int = 0
    #: Messages that the filter was asked about, those of them that it took, and names of its condition that
    #: none of them had: of the whole bridge (`bridge.relay.filtering.FilterRecord`).
    examined: int = 0
    taken: int = 0
    missing: frozenset[str] = frozenset()
    #: Messages that the bridge's transformer dropped, counted as `filtered`.
    dropped: int = 0
    #: Time for which the target's brokers have asked to wait (quotas), ms.
    throttled_ms: int = 0
    reconnects: int = 0
    #: Wall clock, ms, of the last receipt that moved something; 0: none yet.
    last_progress_ms: int = 0
    #: Partitions of the source that are parked now: a record there cannot be decoded.
    parked: int = 0
    #: How far the opening of many streams has come, in words; empty: none is under way, or it is short.
    opening: str = ""
    #: The reason why a stream waits for the target, or the connection failed; empty: there is none.
    trouble: str = ""
    #: The throttling by the target's brokers now, in words; empty: they do not throttle.
    throttled: str = ""
    #: The `max-rate` that a batch waits for now, in words; empty: none does.
    limited: str = ""

    def add(self, part: Counts) -> None:
        """Add the numbers of a lane or a worker; `parked` and the texts are those of the present ones, and
        stay.
        """
        if part.examined:
            self.missing = self.missing & part.missing if self.examined else part.missing
        self.count(part.frame_bytes, part.wire_bytes)
        self.examined += part.examined
        self.taken += part.taken
        self.sent += part.sent
        self.acknowledged += part.acknowledged
        self.refused += part.refused
        self.replayed += part.replayed
        self.repeated += part.repeated
        self.resent += part.resent
        self.resent_bytes += part.resent_bytes
        self.filtered += part.filtered
        self.not_evaluated += part.not_evaluated
        self.dropped += part.dropped
        self.throttled_ms += part.throttled_ms
        self.reconnects += part.reconnects
        self.last_progress_ms = max(self.last_progress_ms, part.last_progress_ms)

    def resent_in_vain(self, batch: Batch) -> None:
        """Add a batch that was sent and not taken."""
        self.resent += batch.count
        self.resent_bytes += batch.size

    def passed_over(self, batch: Batch) -> None:
        """Add what filter and transformer left out of a batch that the target covers."""
        self.filtered += batch.filtered
        self.not_evaluated += batch.not_evaluated
        self.dropped += batch.dropped
