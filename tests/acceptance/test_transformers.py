"""A bridge with a transformer between nodes: what arrives, what does not, and what operators see."""

from __future__ import annotations

import http.client
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.messages.message import Message as StoredMessage
from bridge.transformers.callers import caller_of
from tests.acceptance.test_replay_plan import BRIDGE, counts, entry_of, replay, sent_upto, write_plan
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together
from tests.harness.reports import Report

HERE = "tests.harness.transformers"


def two(make_node: MakeNode, name: str, properties: str = "{}", **keys: str) -> tuple[Node, Node]:
    """An edge with a bridge to a hub through the transformer of this name; both run."""
    hub = make_node("hub")
    transformer = {"transformer": f'"{HERE}:{name}"', "transformer_properties": properties}
    edge = make_node("edge", rest=bridge_to(hub, **transformer, **keys))
    start_together(hub, edge)
    return edge, hub


def send(edge: Node, *bodies: str, **more: object) -> None:
    messages = [{"address": "orders", "body": body, **more} for body in bodies]
    assert edge.api.commit(*messages).status == 200


def covered(edge: Node, within_s: float = 30) -> None:
    """Of what is dropped at the end that is within 10 s."""
    eventually(lambda: edge.lag("orders") == 0, "everything is covered", within_s)


def test_all_arrive_with_another_body_key_and_headers(make_node: MakeNode) -> None:
    """B6, B7"""
    edge, hub = two(make_node, "change_all", '{ colour = "red" }')
    send(edge, *(f"{number}" for number in range(10)), headers={"old": "1", "kept": "2"})
    covered(edge)
    found = hub.api.get("/v1/addresses/orders/messages").json["messages"]
    assert [one["body"] for one in found] == [f"new {number}" for number in range(10)]
    for one in found:
        assert one["key"] == "key"
        assert (one["headers"]["colour"], one["headers"]["kept"]) == ("red", "2")
        assert "old" not in one["headers"]
        assert one["headers"]["seen-id"] == one["duplicate-id"], "it sees the ID that the message has"
    status = edge.status(BRIDGE)
    assert (status["transformer"], status["dropped"]) == (f"{HERE}:change_all", 0)
    assert edge.event("bridge-started")["transformer"] == f"{HERE}:change_all"


def test_one_that_writes_the_id_changes_nothing_about_it(make_node: MakeNode) -> None:
    """B14: in Artemis 9 of 10 are gone."""
    edge, hub = two(make_node, "write_id")
    for number in range(5):
        edge.api.send("orders", b"%d" % number, Duplicate_Id=f"mine-{number}")
    send(edge, *(f"{number}" for number in range(5, 10)))
    covered(edge)
    found = hub.api.get("/v1/addresses/orders/messages").json["messages"]
    assert [one["body"] for one in found] == [f"{number}" for number in range(10)]
    assert [one["duplicate-id"] for one in found[:5]] == [f"mine-{number}" for number in range(5)]
    assert len({one["duplicate-id"] for one in found[5:]}) == 5
    assert not any({"_AMQ_DUPL_ID", "_HQ_DUPL_ID", "core-bridge-hops"} & set(one["headers"]) for one in found)
    assert hub.api.send("orders", b"again", Duplicate_Id="mine-3").json == {"verdict": "duplicate"}


def test_one_that_always_raises_becomes_a_dead_letter_and_the_rest_flows(make_node: MakeNode) -> None:
    """B15"""
    edge, hub = two(make_node, "ByBody", max_delivery_attempts="3")
    send(edge, "raise 0", *(f"m{number}" for number in range(1, 5)), "exit 5", "twice 6", "m7")
    covered(edge)
    assert hub.api.bodies("orders") == ["made m1", "made m2", "made m3", "made m4", "made twice 6", "made m7"]
    letters = edge.api.get("/v1/addresses/dead-letters/messages").json["messages"]
    assert [one["body"] for one in letters] == ["raise 0", "exit 5"], "as they were read"
    assert letters[0]["headers"]["core-bridge-reason"] == (
        f"TRANSFORMER_FAILED: {HERE}:ByBody: ValueError: not this one; tries: 3"
    )
    assert letters[1]["headers"]["core-bridge-reason"].endswith("SystemExit: 3; tries: 3")
    assert edge.status(BRIDGE)["refused"] == 2
    # Mended, and sent again: through the transformer.
    assert edge.stop() == 0
    edge.rest = edge.rest.replace(":ByBody", ":change_all")
    edge.start()
    assert edge.ops.call("POST", "/v1/dead-letters/replay", positions="all").status == 200
    eventually(lambda: "new exit 5" in hub.api.bodies("orders"), "they arrive")
    assert hub.api.bodies("orders")[-2:] == ["new raise 0", "new exit 5"]


def test_what_it_drops_is_covered_and_counted_and_the_logs_agree(make_node: MakeNode) -> None:
    """B16"""
    edge, hub = two(make_node, "ByBody")
    send(edge, "m0", "drop 1", "drop 2", "m3", "drop 4")
    covered(edge)
    assert hub.api.bodies("orders") == ["made m0", "made m3"]
    assert (edge.status(BRIDGE)["dropped"], edge.status(BRIDGE)["filtered"]) == (3, 0)
    assert edge.metrics()[f'core_bridge_messages_dropped_total{{bridge="{BRIDGE}"}}'] == 3
    shown = command("status", "--operations", f"http://127.0.0.1:{edge.operations_port}")
    assert " dropped 3" in shown.out
    assert (edge.stop(), hub.stop()) == (0, 0)
    sent = [line for line in edge.delivery_lines() if line["side"] == "sent"]
    received = [line for line in hub.delivery_lines() if line["bridge"] == BRIDGE]
    for lines in (sent, received):
        assert [run for line in lines for run in line["runs"]] == [[0, 0], [3, 3]]
        assert lines[-1]["upto"] == 5


def test_one_that_cannot_work_now_holds_the_bridge_and_becomes_no_dead_letter(
    make_node: MakeNode, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    edge, hub = two(make_node, "ByBody", f'{{ file = "{up}" }}')
    send(edge, "m0", "down 1", "m2")
    eventually(lambda: "rates are down" in str(edge.status(BRIDGE)["reason"]), "it says so")
    assert edge.ops.get("/ready").status == 200
    up.touch()
    covered(edge)
    assert hub.api.bodies("orders") == ["made m0", "made down 1", "made m2"]
    assert edge.api.get("/v1/addresses/dead-letters").status == 404 or not edge.api.bodies("dead-letters")


def test_a_call_that_does_not_return_holds_neither_the_node_nor_its_stop(
    make_node: MakeNode, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    edge, hub = two(make_node, "ByBody", f'{{ file = "{done}" }}', call_timeout='"200ms"')
    send(edge, "m0", "wait 1", "m2")
    eventually(lambda: "has not returned" in str(edge.status(BRIDGE)["reason"]), "it says so")
    assert edge.api.send("orders", b"m3").status == 200
    assert edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/stop").status == 200
    assert edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/start").status == 200
    began = time.monotonic()
    assert edge.stop() == 0
    assert time.monotonic() - began < 15
    done.touch()
    edge.start()
    covered(edge)
    assert hub.api.bodies("orders") == ["made m0", "made wait 1", "made m2", "made m3"]


def test_it_does_not_start_with_one_that_is_not_there(make_node: MakeNode) -> None:
    """The file is the node's own: no peer names one, and the environment has to have it."""
    hub = make_node("hub").start()
    edge = make_node("edge", rest=bridge_to(hub, transformer='"nowhere.at.all:seen"'))
    edge.write()
    ended = edge.run_to_its_end()
    assert ended.code == 2
    assert f"bridges[0].transformer ({BRIDGE}): cannot be imported here: ModuleNotFoundError" in ended.err


def test_a_replay_plan_goes_through_it(make_node: MakeNode, tmp_path: Path) -> None:
    hub = make_node("hub")
    retained = '[address-settings."#"]\nretain-time = "1h"\n'
    edge = make_node("edge", rest=bridge_to(hub, transformer=f'"{HERE}:ByBody"') + retained)
    start_together(hub, edge)
    send(edge, "m0", "drop 1", "m2", "raise 3")
    covered(edge)
    eventually(lambda: sent_upto(edge) == 4, "it is in the delivery log")
    plan = write_plan(tmp_path / "plan.json", entry_of(edge, [[0, 3]]))
    forced = replay(edge, plan, "--force")
    found = counts(forced)
    assert (found["sent"], found["filtered"], found["refused"]) == (2, 1, 1)
    assert hub.api.bodies("orders") == ["made m0", "made m2"] * 2
    assert counts(replay(edge, plan))["known"] == 2


def test_a_reload_changes_it_and_one_that_is_not_there_changes_nothing(make_node: MakeNode) -> None:
    edge, hub = two(make_node, "ByBody")
    send(edge, "m0")
    covered(edge)
    before = edge.rest
    edge.rest = before.replace(f"{HERE}:ByBody", "nowhere.at.all:seen")
    edge.write()
    operations = ("--operations", f"http://127.0.0.1:{edge.operations_port}")
    refused = command("reload", *operations)
    assert refused.code == 2, refused
    assert "cannot be imported here" in refused.err
    send(edge, "m1")
    edge.rest = before.replace(":ByBody", ":change_all")
    edge.write()
    assert command("reload", *operations).code == 0
    send(edge, "m2")
    covered(edge)
    assert hub.api.bodies("orders")[::2] == ["made m0", "new m2"]


CRASHES = ["link.after-batch:3", "source.before-settle:2", "source.after-settle:3"]


@pytest.mark.parametrize("crash", CRASHES)
def test_killed_while_it_transforms_each_arrives_once_in_order(make_node: MakeNode, crash: str) -> None:
    """The receiver's word counts: what was in doubt is in no sent line, and never called lost."""
    hub = make_node("hub").start()
    rest = bridge_to(hub, transformer=f'"{HERE}:ByBody"', max_delivery_attempts="2")
    edge = make_node("edge", rest=rest).start(CORE_BRIDGE_CRASH_AT=crash)
    bodies = [("drop", "raise")[number % 2] if number % 5 == 0 else "m" for number in range(30)]
    for number, word in enumerate(bodies):

        def answered(number: int = number, word: str = word) -> bool:
            try:
                sent = edge.api.send("orders", f"{word} {number}".encode(), Duplicate_Id=f"{number}")
            except (OSError, http.client.HTTPException):
                assert edge.wait() == -9
                edge.start()
                return False
            return sent.status == 200

        eventually(answered, f"{number} is stored", 30)
    covered(edge)
    kept = [f"made m {number}" for number, word in enumerate(bodies) if word == "m"]
    assert hub.api.bodies("orders") == kept
    raised = [f"raise {number}" for number, word in enumerate(bodies) if word == "raise"]
    assert edge.api.bodies("dead-letters") == raised
    assert (edge.stop(), hub.stop()) == (0, 0)
    received = [line for line in hub.delivery_lines() if line["bridge"] == BRIDGE]
    assert sum(line["count"] for line in received) == len(kept)
    known = {place for line in received for first, last in line["runs"] for place in range(first, last + 1)}
    sent = [line for line in edge.delivery_lines() if line["side"] == "sent"]
    for line in sent:
        assert not line["recovered"]
        assert {place for first, last in line["runs"] for place in range(first, last + 1)} <= known


def test_kills_at_any_moment_while_a_call_runs_lose_and_double_nothing(
    make_node: MakeNode, tmp_path: Path
) -> None:
    hub = make_node("hub").start()
    log = tmp_path / "calls"
    edge = make_node("edge", rest=bridge_to(hub, transformer=f'"{HERE}:ByBody"',
                                            transformer_properties=f'{{ log = "{log}" }}'))  # fmt: skip
    edge.start()
    for number in range(6):
        seen = log.stat().st_size if log.exists() else 0
        send(edge, *(f"m{number}.{index}" for index in range(150)))
        eventually(lambda seen=seen: log.exists() and log.stat().st_size > seen, "it is called")  # type: ignore[misc]
        edge.kill()
        edge.start()
    covered(edge)
    expected = [f"made m{number}.{index}" for number in range(6) for index in range(150)]
    assert hub.api.bodies("orders") == expected


def test_calls_side_by_side_keep_the_order_of_keys_and_messages_through_kills(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """B28: four calls have to be inside at once, or none goes on."""
    log = tmp_path / "calls"
    hub = make_node("hub").start()
    properties = f'{{ calls = 4, log = "{log}" }}'
    transformer = {"transformer": f'"{HERE}:Together"', "transformer_properties": properties}
    edge = make_node("edge", rest=bridge_to(hub, concurrency="4", max_delivery_attempts="1", **transformer))
    edge.start()
    keys = [
        next(f"{n}" for n in range(99) if caller_of(StoredMessage(b"", b"%d" % n), 4) == k) for k in range(4)
    ]
    expected: list[str] = []

    def sent(word: str, turns: int) -> None:
        bodies = [f"{word}.{turn:02}.{key}" for turn in range(turns) for key in keys]
        messages = [{"address": "orders", "body": body, "key": body.rpartition(".")[2]} for body in bodies]
        assert edge.api.commit(*messages).status == 200
        expected.extend(f"made {body}" for body in bodies)

    sent("together", 5)
    covered(edge)
    assert hub.api.bodies("orders") == expected
    assert edge.event("bridge-started")["concurrency"] == (
        "one link, all in order; 4 calls of the transformer at a time, in order for each key"
    )
    for number in range(3):
        seen = log.stat().st_size
        sent(f"kill {number}", 40)
        eventually(lambda seen=seen: log.stat().st_size > seen, "it is called")  # type: ignore[misc]
        edge.kill()
        edge.start()
    covered(edge)
    assert hub.api.bodies("orders") == expected
    assert edge.api.get("/v1/addresses/dead-letters").status == 404 or not edge.api.bodies("dead-letters")
    calls: dict[tuple[str, str], list[str]] = {}
    for line in log.read_text().splitlines():
        process, key, body = line.split("|")
        calls.setdefault((process, key), []).append(body)
    assert {key for _, key in calls} == {*keys}
    for made in calls.values():
        assert made == sorted(made, key=lambda body: expected.index(f"made {body}")), "in order of the key"


@pytest.mark.spark_long
def test_a_bridge_with_one_reconciles_clean(make_node: MakeNode, tmp_path: Path) -> None:
    """B16"""
    edge, hub = two(make_node, "ByBody")
    for number in range(10):
        send(edge, f"{'m' if number % 3 else 'drop'} {number}a", f"m {number}b")
    covered(edge)
    assert (edge.stop(), hub.stop()) == (0, 0)
    report = Report.of(tmp_path / "report", [node.data / "delivery-log" for node in (edge, hub)])
    report.assert_clean(BRIDGE, 16)


def never_returns(file: str, **keys: str) -> str:
    """A bridge whose transformer is not made before `file` is there."""
    transformer = {
        "transformer": f'"{HERE}:NeverReturns"',
        "transformer_properties": f'{{ file = "{file}" }}',
    }
    nowhere = '[connectors.hub]\nurl = "ws://127.0.0.1:1"\n'
    lines = [f"{key.replace('_', '-')} = {value}" for key, value in (transformer | keys).items()]
    bridge = '[[bridges]]\nname = "late"\nqueue-name = "late"\nstatic-connectors = ["hub"]\n'
    return nowhere + bridge + "\n".join(lines) + "\n"


def test_a_reload_meets_a_transformer_that_does_not_return_and_others_go_on(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node().start()
    there = tmp_path / "there"
    node.rest = never_returns(str(there), call_timeout='"2s"')
    node.write()
    rule = "must return from its import and its constructor"
    refused = node.ops.call("POST", "/v1/reload").is_problem(409, "SETTINGS_INVALID")
    assert f"bridges[0].transformer (late): {rule} within 2000 ms, and has not" in refused["detail"]
    assert f'found "{HERE}:NeverReturns"' in refused["detail"]
    slow = node.event("loading-slow", code=f"transformer {HERE}:NeverReturns")
    assert (slow["seconds"], slow["timeout-ms"]) == (1, 2000)
    again = node.ops.call("POST", "/v1/reload").is_problem(409, "SETTINGS_INVALID")
    assert f"{rule}: one of " in again["detail"]
    node.rest = never_returns("")
    node.write()
    assert node.ops.call("POST", "/v1/reload").json["added"] == ["late"]
    node.rest = never_returns(str(there), call_timeout='"60s"', max_hops="3")
    node.write()
    there.touch()
    eventually(lambda: node.ops.call("POST", "/v1/reload").status == 200, "it has returned")
    assert node.stop() == 0


@pytest.mark.parametrize("asks", ["reload", "hang-up"])
def test_a_stop_ends_a_node_whose_reload_waits_for_a_transformer(make_node: MakeNode, asks: str) -> None:
    node = make_node(node='shutdown-timeout = "1s"').start()
    node.rest = never_returns("/nowhere/at/all", call_timeout='"10m"')
    node.write()
    with ThreadPoolExecutor() as calls:
        answer = calls.submit(node.ops.call, "POST", "/v1/reload") if asks == "reload" else None
        if answer is None:
            node.signal(signal.SIGHUP)
        node.event("loading-slow")
        assert node.stop() == 0
        if answer is not None:
            answer.result().is_problem(503, "STOPPING")
    assert node.event("stopped")
    assert not node.events("exit-held")


def test_a_stop_ends_a_node_whose_start_waits_for_a_transformer(make_node: MakeNode, tmp_path: Path) -> None:
    loading = tmp_path / "loading"
    node = make_node(rest=never_returns("/nowhere/at/all", call_timeout='"10m"'))
    node.rest = node.rest.replace('file = "', f'begun = "{loading}", file = "')
    node.spawn()
    eventually(loading.exists, "it is being made")
    assert node.stop() == 0
    assert node.event("stopped")["reason"] == "SIGTERM before the node had started"
