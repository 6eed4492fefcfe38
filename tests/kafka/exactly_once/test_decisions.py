"""What only a person may decide: other lanes, another name, a journal topic that is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.harness.commands import command
from tests.harness.node import MakeNode
from tests.kafka.exactly_once.rig import Form, Way, failed, started

MakeWay = Callable[..., Way]

PARTITIONS: Final = 4


def test_another_concurrency_is_refused_until_the_lanes_are_set(
    form: Form, make_way: MakeWay, make_node: MakeNode
) -> None:
    way = make_way(PARTITIONS)
    node = started(make_node("node-1", way.settings(concurrency=4)))
    part = form.part(4)
    way.feed.send(part)
    way.arrivals.await_count(part // 2)
    for lanes in (2, 3):
        node.kill()
        node.rest = way.settings(concurrency=lanes)
        node.spawn()
        reason = failed(node, way.bridge)
        assert f"core-bridge lanes {way.bridge} --set {lanes}" in reason, reason
        assert node.stop() == 0
        done = command("lanes", way.bridge, "--set", str(lanes), "--settings", str(node.file))
        assert done.code == 0, done
        with way.feed.flowing(form.messages_per_s):
            node.start()
            way.await_more(part // 4)
    way.finish(node)


def test_a_renamed_bridge_goes_on_where_it_was_and_its_old_name_is_refused(
    form: Form, make_way: MakeWay, make_node: MakeNode, unique: Callable[[str], str]
) -> None:
    way = make_way(PARTITIONS)
    old, new = way.bridge, unique("renamed")
    node = started(make_node("node-1", way.settings(concurrency=2)))
    way.feed.send(form.part(2))
    way.arrivals.await_count(form.part(4))
    node.kill()
    node.rest = way.settings(concurrency=2, name=new, previous_name=old)
    node.start()
    way.feed.send()
    way.await_all()
    assert node.stop() == 0
    node.rest = way.settings(concurrency=2)
    node.spawn()
    assert new in failed(node, old)
    assert node.stop() == 0
    way.check()


def test_without_its_journal_topic_a_bridge_does_not_begin_again(
    form: Form, make_way: MakeWay, make_node: MakeNode
) -> None:
    way = make_way(PARTITIONS)
    node = started(make_node("node-1", way.settings()))
    way.feed.send()
    way.await_all()
    assert node.stop() == 0
    way.target.delete_topic(f"core-bridge.{way.bridge}.journal")
    for _ in range(2):
        node.spawn()
        reason = failed(node, way.bridge)
        assert f"core-bridge positions {way.bridge} --from group" in reason, reason
        assert node.stop() == 0
    way.check()
    done = command("positions", way.bridge, "--from", "group", "--settings", str(node.file))
    assert done.code == 0, done
    way.finish(started(node))


def test_a_journal_topic_that_forgets_is_refused(form: Form, make_way: MakeWay, make_node: MakeNode) -> None:
    """As auto-creation makes it: `cleanup.policy = delete` would drop what the bridge remembers."""
    way = make_way(PARTITIONS)
    way.target.create_topic(
        f"core-bridge.{way.bridge}.journal", PARTITIONS, config={"cleanup.policy": "delete"}
    )
    way.feed.send(form.part(4))
    node = make_node("node-1", way.settings())
    node.spawn()
    reason = failed(node, way.bridge)
    assert "cleanup.policy" in reason, reason
    assert way.arrivals.look(0.5) == 0
    way.target.delete_topic(f"core-bridge.{way.bridge}.journal")
    assert node.ops.call("POST", f"/v1/bridges/{way.bridge}/start").status == 200
    way.finish(node)
