"""`core-bridge replay`: what a target lost is sent again, once, and accounted for."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.lossy_end import VARIABLE
from tests.harness.commands import Ended, command
from tests.harness.eventually import eventually
from tests.harness.lossy import installed, lossy
from tests.harness.node import MakeNode, Node, bridge_to, start_together
from tests.harness.reports import Report

BRIDGE = "orders-to-hub"
#: What is lost of the first ten messages.
LOST = [[2, 3], [7, 7]]
RETAINED = '[address-settings."#"]\nretain-time = "1h"\n'


def plan_hash(entries: list[dict[str, Any]]) -> str:
    """As docs/replay.md has it."""
    return hashlib.sha256(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_plan(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"v": 1, "plan": plan_hash([*entries]), "entries": entries}))
    return path


def entry_of(edge: Node, positions: list[list[int]]) -> dict[str, Any]:
    """What a reconciliation would say of the bridge, by its own sent line."""
    line = next(line for line in edge.delivery_lines() if line["side"] == "sent" and line["bridge"] == BRIDGE)
    return {key: line[key] for key in ("bridge", "stream", "address", "target", "store")} | {
        "positions": positions
    }


def losing(make_node: MakeNode, tmp_path: Path, rest: str = RETAINED, **bridge: str) -> tuple[Node, Node]:
    """An edge that has sent m0 to m9, of which three were lost on the way to the hub."""
    hub = make_node("hub")
    variables = installed(tmp_path) | {VARIABLE: "orders:2-3,7"}
    edge = make_node("edge", rest=lossy(bridge_to(hub, **bridge), "hub") + rest, variables=variables)
    start_together(hub, edge)
    for number in range(10):
        edge.api.send("orders", b"m%d" % number)
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    eventually(lambda: sent_upto(edge) == 10, "it is in the delivery log")
    assert hub.api.bodies("orders") == ["m0", "m1", "m4", "m5", "m6", "m8", "m9"]
    return edge, hub


def sent_upto(edge: Node) -> int:
    lines = [line for line in edge.delivery_lines() if line["side"] == "sent" and line["bridge"] == BRIDGE]
    return max((line["upto"] for line in lines), default=0)


def replay(edge: Node, plan: Path, *options: str) -> Ended:
    return command(
        "replay", "--plan", str(plan), "--operations", f"http://127.0.0.1:{edge.operations_port}", *options
    )


def counts(ended: Ended) -> dict[str, int]:
    """The last line's numbers."""
    words = ended.out.splitlines()[-1].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


SENT = {"sent": 3, "known": 0, "earlier": 0, "gone": 0, "refused": 0, "unknown": 0}


def test_what_was_lost_is_sent_once_however_often_the_plan_is_given(
    make_node: MakeNode, tmp_path: Path
) -> None:
    edge, hub = losing(make_node, tmp_path)
    plan = write_plan(tmp_path / "plan.json", entry_of(edge, LOST))

    looked = replay(edge, plan, "--dry-run")
    assert (looked.code, counts(looked)) == (0, SENT)
    assert len(hub.api.bodies("orders")) == 7, "a dry run sends nothing"
    sent = replay(edge, plan)
    assert (sent.code, counts(sent)) == (0, SENT), sent
    again = replay(edge, plan)
    assert (again.code, counts(again)) == (0, SENT | {"sent": 0, "earlier": 3})
    assert counts(replay(edge, plan, "--dry-run")) == SENT | {"sent": 0, "earlier": 3}

    assert hub.api.bodies("orders") == ["m0", "m1", "m4", "m5", "m6", "m8", "m9", "m2", "m3", "m7"]
    ids = {message["body"]: message["duplicate-id"] for message in hub.api.browse("orders")}
    assert ids["m2"][:-1] == ids["m1"][:-1], "the ID is that of the place it was first stored at"
    edge.api.send("orders", b"m10")
    eventually(lambda: hub.api.bodies("orders")[-1] == "m10", "the bridge goes on as ever")
    assert hub.stop() == 0
    lines = [line for line in hub.delivery_lines() if line.get("replays")]
    (stream,) = {line["replays"] for line in lines}
    assert stream == entry_of(edge, LOST)["stream"]
    assert [run for line in lines for run in line["runs"]] == LOST
    assert {line["stream"] for line in lines} == {
        f"{stream}:replay:{json.loads(plan.read_text())['plan'][:16]}"
    }


def test_a_plan_of_another_node_store_or_hand_is_refused(make_node: MakeNode, tmp_path: Path) -> None:
    edge, hub = losing(make_node, tmp_path)
    entry = entry_of(edge, LOST)
    elsewhere = {"another-bridge": {"bridge": "another"}, "has no stream": {"stream": "journal:0:orders:0"}}
    for number, (said, change) in enumerate(
        (*elsewhere.items(), ("delivers to", {"store": "somebody:else"}))
    ):
        plan = write_plan(tmp_path / f"{number}.json", entry | change)
        for options in ([], ["--dry-run"]):
            ended = replay(edge, plan, *options)
            assert ended.code == 1
            assert said.replace("another-bridge", "bridge another is not one") in ended.err, ended
    edited = tmp_path / "edited.json"
    edited.write_text(
        json.dumps({"v": 1, "plan": plan_hash([entry]), "entries": [entry | {"positions": [[2, 2]]}]})
    )
    ended = replay(edge, edited)
    assert ended.code == 2
    assert "A plan is not edited" in ended.err
    assert len(hub.api.bodies("orders")) == 7


@pytest.mark.parametrize(("victim", "point"), [("edge", "link.after-batch"), ("hub", "link.before-receipt")])
def test_a_node_killed_while_it_replays_sends_each_message_once(
    make_node: MakeNode, tmp_path: Path, victim: str, point: str
) -> None:
    edge, hub = losing(make_node, tmp_path)
    plan = write_plan(tmp_path / "plan.json", entry_of(edge, LOST))
    node = {"edge": edge, "hub": hub}[victim]
    node.kill()
    node.start(CORE_BRIDGE_CRASH_AT=f"{point}:1")
    edge.await_state(BRIDGE, "RUNNING")
    ended = replay(edge, plan)
    assert ended.code == 1, "no answer came, or not from the target"
    assert node.wait() == -signal.SIGKILL
    node.start()
    eventually(lambda: replay(edge, plan).code == 0, "the plan is completed")
    assert sorted(hub.api.bodies("orders")) == [f"m{number}" for number in range(10)]


@pytest.mark.spark_long
def test_lost_found_replayed_and_clean(make_node: MakeNode, tmp_path: Path) -> None:
    """The whole way: a target loses, the logs say what, the plan mends it, and all is accounted for."""
    edge, hub = losing(make_node, tmp_path)
    logs = [node.data / "delivery-log" for node in (edge, hub)]
    assert (edge.stop(), hub.stop()) == (0, 0)
    found = Report.of(tmp_path / "before", logs)
    assert (found.ended.code, found.summary["verdict"], found.total("lost", BRIDGE)) == (3, "lost", 3), found

    del edge.variables[VARIABLE]
    start_together(hub, edge)
    mended = replay(edge, found.plan)
    assert (mended.code, counts(mended)) == (0, SENT), mended
    assert (edge.stop(), hub.stop()) == (0, 0)
    clean = Report.of(tmp_path / "after", logs)
    clean.assert_clean(BRIDGE, 10)
    assert json.loads(clean.plan.read_text())["entries"] == []
