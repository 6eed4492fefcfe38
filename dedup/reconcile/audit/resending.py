"""Makes the replay plan of an audit: for what is lost, and on request for what the target has deleted."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dedup.reconcile.audit.bounds import BY_DELETION
from dedup.reconcile.audit.missing import BY_EARLIER
from dedup.reconcile.audit.plan import Plan
from dedup.reconcile.plan import MAX_RANGES, merged
from dedup.replay_plan import Entry, make
from dedup.replay_plan import Plan as ReplayPlan

#: How the details of findings begin where the target may have deleted the record. Not what a compacted target
#: lacks: an older value that is sent again would stand behind the newer one of its key.
_DELETED: Final = (BY_DELETION, BY_EARLIER)


def replay_plan(plan: Plan, findings: DataFrame, *, with_deleted: bool) -> ReplayPlan:
    """The plan that sends again what is lost, for `core-bridge replay --plan`; at most `MAX_RANGES` ranges.

    Args:
        plan: the audit's, of a bridge.
        findings: all of the audit's (`job.judge`).
        with_deleted: also what the target no longer has: unknown findings below its beginning.
    """
    wanted = F.col("kind") == "lost"
    if with_deleted:
        is_deleted = F.lit(False)
        for reason in _DELETED:
            is_deleted |= F.col("detail").startswith(reason)
        wanted |= (F.col("kind") == "unknown") & is_deleted
    rows = findings.where(wanted).orderBy("stream", "first").limit(MAX_RANGES)
    ranges: dict[str, list[tuple[int, int]]] = {}
    for row in rows.select("stream", "first", "last").collect():
        ranges.setdefault(row["stream"], []).append((row["first"], row["last"]))
    topics = {one.identity: one.topic for one in plan.streams}
    return make(
        [
            Entry(plan.bridge, stream, topics[stream], plan.target.connector, plan.store, merged(found))
            for stream, found in sorted(ranges.items())
        ]
    )
