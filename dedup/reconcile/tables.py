"""The results of reconcile: six tables, their columns and the meaning of each number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import DataFrame

#: The kinds of findings. `lost`, `doubled` and `repeated-id` make the verdict `lost`; `unknown` and `unsent`
#: make it `unknown`, unless something is lost; the others change nothing.
Kind = Literal[
    "lost",
    "doubled",
    "unsent",
    "out-of-order",
    "late",
    "open",
    "refused",
    "rejected",
    "unknown",
    "repeated-id",
]

INPUTS: Final = "path string, sha256 string, lines long, unreadable long, bytes long"
FLOWS: Final = (
    "bridge string, stream string, store string, address string, target string, sent long, received long, "
    "lost long, doubled long, unsent long, out_of_order long, late long, open long, refused long, "
    "rejected long, unknown long, sent_upto long, received_upto long, first_ms long, last_ms long, "
    "sent_ms long, waiting long, waiting_since_ms long"
)
FINDINGS: Final = (
    "kind string, bridge string, stream string, store string, address string, first long, last long, "
    "count long, id string, detail string"
)
HOURS: Final = "bridge string, stream string, address string, hour_ms long, sent long, received long"
LATENCY: Final = (
    "bridge string, stream string, address string, count long, p50_ms long, p90_ms long, p99_ms long, "
    "p999_ms long, max_ms long"
)
ID_CACHES: Final = "store string, address string, accepted long, repeated long, needed long"


@dataclass(frozen=True, slots=True)
class Tables:
    """The result of a run. The frames are lazy; what they share is kept until `release`.

    A flow is (bridge, stream, store), but for the streams of replay plans. Clients' sends are flows with a
    null bridge and a received side only. A flow's `address` and `target` are those of its newest sent line,
    or of its newest received line where it has no sent line.
    """

    #: `INPUTS`: a row a file. `lines`: read; `unreadable`: torn or not JSON, not in `lines`;
    #: `sha256`: of the file's first `bytes` bytes, which is all of it unless it was still being written.
    inputs: DataFrame
    #: `FLOWS`: a row a flow. Counts are positions, each counted once a column: `received` as well if a
    #: replay plan brought them. `doubled` also counts each place beyond the first at which a producer's ID
    #: was accepted, in the flow of that place.
    #: `rejected` counts messages that the target knew, each in one line. `first_ms`, `last_ms`: events.
    #: `sent_ms`: the newest commit of a sent line. `waiting`: messages that clients sent to the flow's stream
    #: beyond its sent lines, the first of them stored at `waiting_since_ms`.
    flows: DataFrame
    #: `FINDINGS`: ranges of positions, inclusive and as long as can be, or one row an ID. Of `rejected`
    #: and `repeated-id` the address is the one where the ID was checked.
    findings: DataFrame
    #: `HOURS`: messages by lines, those of replay plans too (a range that was logged twice counts twice): a
    #: batch in the hour of its first event (`sent`) or commit (`received`).
    hours: DataFrame
    #: `LATENCY`: from event to commit, of bridges' messages, clocks corrected where a line says how far they
    #: were apart. Approximate: steps of 1 %, a batch's messages spread evenly between its two event times.
    latency: DataFrame
    #: `ID_CACHES`: a row a (store, address) where IDs are checked: IDs accepted, IDs that came again, and
    #: the `id-cache-size` that would have known each of them (0: none came again).
    id_caches: DataFrame
    #: The frames kept in Spark for them.
    kept: tuple[DataFrame, ...] = ()
    #: Files that look like a log's, and were not read.
    left_out: tuple[str, ...] = ()

    def release(self) -> None:
        """Release the frames kept in Spark; they must not be used any more."""
        for frame in self.kept:
            frame.unpersist()
