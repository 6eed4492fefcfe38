"""Makes the replay plan for `core-bridge replay --plan` from the lost messages; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dedup.reconcile.rows import Finding, Flow
from dedup.replay_plan import Entry, Plan, make

#: Ranges that one plan holds. What is lost beyond them is in the findings; replay, then reconcile again.
MAX_RANGES: Final = 100_000


def plan(lost: Iterable[Finding], flows: Iterable[Flow]) -> Plan:
    """The plan that resends `lost`: an entry for each flow, its ranges ascending and merged where they touch.

    Args:
        lost: findings of the kind ``lost``, of bridges.
        flows: the flows they belong to, which know the target's name.
    """
    known = {(flow.bridge, flow.stream, flow.store): flow for flow in flows}
    ranges: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for found in lost:
        assert found.bridge is not None
        assert found.stream is not None
        assert found.first is not None
        assert found.last is not None
        ranges.setdefault((found.bridge, found.stream, found.store), []).append((found.first, found.last))
    return make(
        [
            Entry(
                bridge=key[0],
                stream=key[1],
                address=known[key].address,
                target=known[key].target,
                store=key[2],
                positions=merged(found),
            )
            for key, found in sorted(ranges.items())
        ]
    )


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges (first, last), ascending, and joined where they touch or overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            before, end = found.pop()
            found.append((before, max(end, last)))
        else:
            found.append((first, last))
    return tuple(found)
