from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bridge.assembly.summary import BridgeSummary
from bridge.errors import TargetUnavailable
from bridge.node.bridge_set import NodeBridge
from bridge.node.operations import Control
from bridge.relay.ownership import AskDivision, Division, Member
from tests.fakes.workers import ObedientBridge


async def lanes(division: AskDivision | None, owned: list[int] | None) -> Any:
    """What the status of a node with one bridge says of its lanes."""
    relay = ObedientBridge()
    relay.owned_lanes = owned
    summary = BridgeSummary("eu:orders", "us", "exactly-once", True, 20_000, division=division)
    parts = SimpleNamespace(supervisor=None, extensions=[])
    node: Any = SimpleNamespace(
        bridges={"eu-to-us": NodeBridge(relay, summary)},
        journal=None,
        parts=parts,
        stopping=False,
        accepting=True,
        open_links=[],
    )
    (shown,) = (await Control(node).status())["bridges"]
    return shown["lanes"]


async def test_a_bridge_without_lanes_shows_none() -> None:
    assert await lanes(None, None) is None


async def test_a_bridge_that_shares_its_lanes_shows_who_has_which() -> None:
    async def ask() -> Division:
        member = Member("node-2 worker 1", "10.0.0.7", frozenset({3, 1}), frozenset({0}))
        return Division((member,), frozenset({0}))

    assert await lanes(ask, [2]) == {
        "here": [2],
        "members": [{"name": "node-2 worker 1", "host": "10.0.0.7", "lanes": [1, 3], "failed": [0]}],
        "nobody": [0],
        "trouble": None,
    }


async def test_a_group_that_does_not_answer_leaves_what_the_node_knows() -> None:
    async def ask() -> Division:
        raise TargetUnavailable("connector us: timed out")

    assert await lanes(ask, [2]) == {
        "here": [2],
        "members": None,
        "nobody": None,
        "trouble": "TARGET_UNAVAILABLE: connector us: timed out",
    }


async def test_a_bridge_that_shares_with_no_other_process_asks_none() -> None:
    assert await lanes(None, [0, 1]) == {"here": [0, 1], "members": None, "nobody": None, "trouble": None}
