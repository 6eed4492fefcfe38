"""Settings that are reloaded while a node runs: by SIGHUP, by command, when the file changes; under load."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.harness.commands import Ended, command
from tests.harness.eventually import eventually
from tests.harness.node import RETRY_INTERVAL_MS, MakeNode, Node, bridge_to, start_together

ADDRESSES = ("a", "b", "c")
RELOADED = ("settings", "added", "restarted", "at-rest", "removed")


def bridges(hub: Node, *names: str, **keys: str) -> str:
    """A bridge of its own for each of these addresses; `keys`: TOML of further lines, by address."""
    text = f'[connectors.hub]\nurl = "{hub.url}"\n'
    for name in names:
        text += (
            f'[[bridges]]\nname = "{name}-to-hub"\nqueue-name = "{name}"\nstatic-connectors = ["hub"]\n'
            f"retry-interval = {RETRY_INTERVAL_MS}\nmax-retry-interval = {RETRY_INTERVAL_MS}\n"
            f"{keys.get(name, '')}\n"
        )
    return text


def reload(node: Node, *more: str) -> Ended:
    return command("reload", "--operations", f"http://127.0.0.1:{node.operations_port}", *more)


def outcome(node: Node) -> dict[str, list[str]]:
    """What a reload that took effect has changed."""
    ended = reload(node, "--format", "json")
    assert (ended.code, ended.err) == (0, ""), ended
    found = json.loads(ended.out)
    assert set(found) == set(RELOADED)
    return {key: value for key, value in found.items() if value}


def hang_up(node: Node, event: str = "settings-reloaded") -> dict[str, Any]:
    """SIGHUP, and the line of the log that says what came of it."""
    before = len(node.events(event))
    node.signal(signal.SIGHUP)
    return eventually(lambda: node.events(event)[before:], f"{node.name} logs {event}")[0]


def links(hub: Node) -> dict[str, str]:
    """Since when each bridge's link is open, as the hub has it."""
    return {link["bridge"]: link["since"] for link in hub.ops.get("/v1/status").json["links"]}


def await_links(hub: Node, *addresses: str) -> dict[str, str]:
    names = {f"{address}-to-hub" for address in addresses}
    return eventually(lambda: found if (found := links(hub)).keys() == names else None, f"links of {names}")


class Stream:
    """Messages that come to addresses, numbered for each, until it is stopped."""

    def __init__(self, node: Node, *addresses: str) -> None:
        self._node = node
        self.sent: dict[str, int] = dict.fromkeys(addresses, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            for address in self.sent:
                self.send(address)

    def send(self, address: str) -> None:
        """One message; sent again with the same ID until it is stored, as after a crash."""
        number = self.sent[address]

        def stored() -> bool:
            reply = self._node.api.send(address, b"%d" % number, Duplicate_Id=f"{address}-{number}")
            return reply.status == 200

        eventually(stored, f"{address} {number} is stored")
        self.sent[address] += 1

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def arrived(hub: Node, address: str) -> list[str]:
    """Every body at the address, in order."""
    bodies: list[str] = []
    after = -1
    while page := hub.api.browse(address, f"max=1000&after={after}"):
        bodies += [message["body"] for message in page]
        after = page[-1]["position"]
    return bodies


def all_arrive_once(hub: Node, sent: Mapping[str, int]) -> None:
    for address, number in sent.items():
        eventually(
            lambda address=address, number=number: len(arrived(hub, address)) >= number,  # type: ignore[misc]
            f"{number} messages of {address} arrive",
        )
        assert arrived(hub, address) == [str(one) for one in range(number)], address


@contextmanager
def unchanged(edge: Node, hub: Node, *addresses: str) -> Iterator[None]:
    """Meanwhile these bridges keep their links, and their counts go on."""
    names = [f"{address}-to-hub" for address in addresses]
    before, counts = links(hub), {name: edge.status(name)["acknowledged"] for name in names}
    yield
    after = links(hub)
    for name in names:
        assert after[name] == before[name], f"{name} has connected again"
        assert edge.status(name)["acknowledged"] >= counts[name]
        assert len(edge.events("bridge-started", bridge=name)) == 1


def edge_and_hub(make_node: MakeNode, *names: str, **fields: Any) -> tuple[Node, Node]:
    hub = make_node("hub")
    edge = make_node("edge", bridges(hub, *names), **fields)
    start_together(hub, edge)
    await_links(hub, *names)
    return edge, hub


# ------------------------------------------------------------------ bridges


def test_one_bridge_of_three_changes_while_messages_flow(make_node: MakeNode) -> None:
    """O1: the others keep their links."""
    edge, hub = edge_and_hub(make_node, *ADDRESSES)
    with Stream(edge, *ADDRESSES) as stream, unchanged(edge, hub, "a", "c"):
        before = links(hub)["b-to-hub"]
        eventually(lambda: min(stream.sent.values()) > 20, "messages flow")
        edge.rest = bridges(hub, *ADDRESSES, b='confirmation-window-size = "64KiB"')
        edge.write()
        event = hang_up(edge)
        assert {key: event[key] for key in RELOADED if event[key]} == {"restarted": ["b-to-hub"]}
        eventually(lambda: links(hub).get("b-to-hub", before) != before, "the changed one connects anew")
        sent = dict(stream.sent)
        eventually(lambda: all(stream.sent[one] > sent[one] + 20 for one in sent), "messages flow on")
    all_arrive_once(hub, stream.sent)
    assert edge.stop() == 0


def test_bridges_come_and_go_and_one_that_is_back_continues_where_it_was(make_node: MakeNode) -> None:
    """O1, O3."""
    edge, hub = edge_and_hub(make_node, "a", "b")
    stream = Stream(edge, "a", "b", "c")
    with unchanged(edge, hub, "a"):
        for _ in range(5):
            stream.send("b")
        all_arrive_once(hub, {"b": 5})
        edge.rest = bridges(hub, "a", "c")
        edge.write()
        assert outcome(edge) == {"added": ["c-to-hub"], "removed": ["b-to-hub"]}
        await_links(hub, "a", "c")
        for address in ("a", "b", "c"):
            stream.send(address)
        all_arrive_once(hub, {"a": 1, "b": 5, "c": 1})
        states = edge.ops.get("/ready").json["bridges"]
        assert states == {"a-to-hub": "RUNNING", "c-to-hub": "RUNNING"}
        orphan = edge.event("orphan-queue", bridge="b-to-hub")
        assert (orphan["address"], orphan["reason"]) == ("b", "the bridge is not in the settings")
        (left,) = edge.api.get("/v1/addresses/b").json["bridges"]
        assert (left["name"], left["state"], left["lag"]) == ("b-to-hub", "STOPPED", 1)
        edge.rest = bridges(hub, *ADDRESSES)
        edge.write()
        assert outcome(edge) == {"added": ["b-to-hub"]}
        all_arrive_once(hub, {"a": 1, "b": 6, "c": 1})
    assert edge.api.get("/v1/addresses/b").json["bridges"][0]["state"] == "RUNNING"


def test_a_bridge_takes_over_from_one_that_goes_by_its_previous_name(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, "a")
    stream = Stream(edge, "a")
    for _ in range(3):
        stream.send("a")
    all_arrive_once(hub, {"a": 3})
    edge.rest = edge.rest.replace('"a-to-hub"', '"renamed"\nprevious-name = "a-to-hub"')
    edge.write()
    assert outcome(edge) == {"added": ["renamed"], "removed": ["a-to-hub"]}
    stream.send("a")
    all_arrive_once(hub, {"a": 4})
    assert [one["name"] for one in edge.api.get("/v1/addresses/a").json["bridges"]] == ["renamed"]


def test_a_bridge_that_an_operator_has_stopped_stays_stopped_and_a_failed_one_starts(
    make_node: MakeNode,
) -> None:
    hub = make_node("hub")
    edge = make_node("edge", bridges(hub, "a", "b", b="initial-connect-attempts = 1"))
    edge.start_listening()  # before the hub: b's one attempt fails
    edge.await_failed("b-to-hub")
    assert edge.ops.call("POST", "/v1/bridges/a-to-hub/stop").status == 200
    hub.start()
    edge.rest = bridges(hub, "a", "b", a="max-hops = 3", b="max-hops = 3")
    edge.write()
    ended = reload(edge)
    assert (ended.code, ended.out) == (
        0,
        "reloaded\nrestarted: b-to-hub\nchanged, and stopped as before: a-to-hub\n",
    )
    edge.await_state("b-to-hub", "RUNNING")
    assert edge.bridge_state("a-to-hub") == "STOPPED"
    assert edge.ops.call("POST", "/v1/bridges/a-to-hub/start").status == 200
    edge.await_state("a-to-hub", "RUNNING")


def test_a_changed_connector_restarts_the_bridges_that_use_it(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, "a")
    other = make_node("other").start()
    stream = Stream(edge, "a", "n")
    edge.rest += bridge_to(other, "n-to-other", '"n"', "other")
    edge.write()
    assert outcome(edge) == {"added": ["n-to-other"]}
    with unchanged(edge, hub, "a"):
        stream.send("n")
        all_arrive_once(other, {"n": 1})
        other.stop()
        (other.port, port) = (hub.port, other.port)  # an address where nothing listens, and back
        edge.rest = edge.rest.replace(f":{port}", ":1")
        edge.write()
        assert outcome(edge) == {"restarted": ["n-to-other"]}
        edge.await_state("n-to-other", "CONNECTING")
        other.port = port
        other.start()
        edge.rest = edge.rest.replace('"ws://127.0.0.1:1"', f'"ws://127.0.0.1:{port}"')
        edge.write()
        assert outcome(edge) == {"restarted": ["n-to-other"]}
        stream.send("n")
        all_arrive_once(other, {"n": 2})


# ------------------------------------------------------------------ what changes nothing


def test_a_file_that_does_not_hold_changes_nothing_and_says_what_validate_says(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, "a", "b")
    good = edge.rest
    with unchanged(edge, hub, "a", "b"):
        for bad in ("[bridges\n", bridges(hub, "a", a='filter = "x ="\nretry-intervall = 3')):
            edge.rest = bad
            edge.write()
            said = command("validate", "--settings", str(edge.file))
            ended = reload(edge)
            assert (ended.code, ended.out, ended.err) == (2, "", said.err)
            event = hang_up(edge, "settings-not-reloaded")
            assert event["level"] == "warning"
            assert event["reason"] == f"SETTINGS_INVALID: {said.err.rstrip()}"
        problem = edge.ops.call("POST", "/v1/reload").is_problem(409, "SETTINGS_INVALID")
        assert problem["detail"] == command("validate", "--settings", str(edge.file)).err.rstrip()
        edge.file.unlink()
        assert "must be a file that can be read; found no such file" in reload(edge).err
        edge.rest = good
        edge.write()
        assert reload(edge).out == "reloaded: nothing has changed\n"
    assert edge.ops.get("/ready").status == 200


def test_keys_that_need_a_restart_are_refused_by_name_and_nothing_else_changes(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, "a", "b")
    with unchanged(edge, hub, "a", "b"):
        edge.rest = (
            bridges(hub, "a", a="max-hops = 3") + '[addresses.new]\n[delivery-log]\nroll-size = "1MiB"\n'
        )
        edge.acceptor = 'max-requests = 7\ntokens = ["t"]'
        text = edge.write().read_text().replace('name = "edge"', 'name = "other"', 1)
        edge.file.write_text(text)
        ended = reload(edge)
        assert (ended.code, ended.out) == (1, "")
        kept = "cannot change while the node runs (restart it); it has"
        assert ended.err.splitlines() == [
            f'{edge.file}: node.name: {kept} "edge"; found "other"',
            f"{edge.file}: acceptor.max-requests: {kept} 512; found 7",
            f"{edge.file}: delivery-log.roll-size: {kept} 67108864; found 1048576",
            "3 problems",
        ]
        assert hang_up(edge, "settings-not-reloaded")["reason"].startswith("SETTINGS_REFUSED: ")
        assert edge.api.get("/v1/addresses/new").status == 404
        assert edge.api.send("a", b"0").status == 200  # no token is needed still
    edge.file.write_text(
        text.replace("[acceptor]\nurl", "[acceptor]\n#url").replace("[operations]\nurl", "#")
    )
    assert "operations: cannot change while the node runs" in reload(edge).err or reload(edge).code == 2


def test_a_connector_of_a_cluster_stays_as_it_is(make_node: MakeNode) -> None:
    node = make_node("node", acceptor='tokens = ["t"]', token="t")
    node.rest = (
        f'[connectors.self]\nurl = "{node.url}"\ntoken = "t"\n'
        '[connectors.n]\nurl = "ws://127.0.0.1:1"\ntoken = "t"\n'
        '[[cluster-connections]]\nname = "main"\nconnector-ref = "self"\nstatic-connectors = ["n"]\n'
    )
    node.start()
    node.rest = node.rest.replace("127.0.0.1:1", "127.0.0.1:2") + "max-hops = 2\n"
    node.write()
    ended = reload(node)
    assert ended.code == 1
    assert "connectors.n.url: cannot change" in ended.err
    assert "cluster-connections.main.max-hops: cannot change" in ended.err


# ------------------------------------------------------------------ what takes effect in place


def test_addresses_and_their_settings_take_effect_in_place(make_node: MakeNode) -> None:
    """D22: a size of the ID cache, too."""
    edge, hub = edge_and_hub(make_node, "a")
    limits = '[address-settings."#"]\nmax-size-bytes = {}\naddress-full-policy = "FAIL"\n'
    edge.rest += limits.format(300)
    edge.write()
    with unchanged(edge, hub, "a"):
        assert outcome(edge) == {"settings": ['address-settings."#"']}
        assert edge.api.send("full", b"x" * 200).status == 200  # with its headers it is 300 bytes
        edge.api.send("full", b"x").is_problem(503, "ADDRESS_FULL")
        assert edge.api.get("/v1/addresses/full").json["max-bytes"] == 300
        edge.rest = edge.rest.replace("300", '"1MiB"') + (
            "id-cache-size = 5\n[addresses.new]\n"
            'queues = ["all", { name = "red", filter = "colour = \'red\'" }]\n'
            '[addresses.work]\nrouting-type = "ANYCAST"\n'
        )
        edge.write()
        expected = ["max-size-bytes", "id-cache-size"]
        assert set(outcome(edge)["settings"]) == {
            *(f'address-settings."#".{key}' for key in expected),
            *("addresses.new", "addresses.work"),
        }
        assert edge.api.send("full", b"x").status == 200
        assert edge.api.get("/v1/addresses/full").json["id-cache"]["capacity"] == 5
        assert edge.api.send("new", b"1", Message_Header_colour="red").status == 200
        assert edge.api.send("new", b"2", Message_Header_colour="blue").status == 200
        assert [one["body"] for one in edge.api.lease("new", "all")[1]] == ["1", "2"]
        assert [one["body"] for one in edge.api.lease("new", "red")[1]] == ["1"]
        assert edge.api.get("/v1/addresses/work").json["routing-type"] == "ANYCAST"
        edge.rest = edge.rest.replace("'red'", "'blue'") + '[addresses.full]\nrouting-type = "ANYCAST"\n'
        edge.write()
        refused = reload(edge)
        assert refused.code == 1
        assert "addresses.full.routing-type: full is MULTICAST, which changes at a start only" in refused.err
        edge.rest = edge.rest.replace('[addresses.full]\nrouting-type = "ANYCAST"\n', "")
        edge.write()
        assert outcome(edge) == {"settings": ["addresses.new.queues"]}
        assert edge.api.send("new", b"3", Message_Header_colour="blue").status == 200
        assert [one["body"] for one in edge.api.lease("new", "red")[1]] == ["3"]
    assert edge.stop() == 0
    edge.start()  # by the same file
    assert edge.api.get("/v1/addresses/full").json["id-cache"]["capacity"] == 5


def test_tokens_and_users_take_effect_in_place(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor="")
    edge = make_node("edge", bridges(hub, "a").replace("[[bridges", 'token = "link-1"\n[[bridges', 1))
    start_together(hub, edge)
    await_links(hub, "a")
    user = '[[acceptor.users]]\nname = "shop"\ntoken = "s"\nsend = ["{}"]\n'
    hub.acceptor = 'tokens = ["link-1"]\n' + user.format("x")
    hub.write()
    assert outcome(hub) == {"settings": ["acceptor.tokens", "acceptor.users.shop"]}
    hub.api.send("x", b"").is_problem(401, "UNAUTHENTICATED")  # it was open before
    shop = {"Authorization": "Bearer s"}
    assert hub.api.call("POST", "/v1/addresses/x/messages", b"", shop).status == 200
    await_links(hub, "a")
    hub.acceptor = 'tokens = ["link-2"]\n' + user.format("y")
    hub.write()
    assert outcome(hub) == {"settings": ["acceptor.tokens", "acceptor.users.shop.send"]}
    hub.api.call("POST", "/v1/addresses/x/messages", b"", shop).is_problem(403, "FORBIDDEN")
    assert hub.api.call("POST", "/v1/addresses/y/messages", b"", shop).status == 200
    edge.await_state("a-to-hub", "CONNECTING")  # its token is none any more
    edge.rest = edge.rest.replace("link-1", "link-2")
    edge.write()
    assert outcome(edge) == {"settings": ["connectors.hub.token"]}
    edge.await_state("a-to-hub", "RUNNING")
    assert len(edge.events("bridge-started")) == 1
    log = edge.log.read_text() + hub.log.read_text()
    assert "link-2" not in log


def test_the_log_level_and_the_time_to_drain_take_effect_in_place(make_node: MakeNode) -> None:
    node = make_node("node", node='log-level = "warning"').start()
    assert node.events("listening") == []
    node.node = 'log-level = "info"\nshutdown-timeout = "3s"'
    node.write()
    assert outcome(node) == {"settings": ["node.shutdown-timeout", "node.log-level"]}
    assert node.event("settings-reloaded")
    assert node.stop() == 0
    assert node.event("stopped")


def test_a_watched_file_is_reloaded_when_it_changes(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, "a", node="watch-settings = true")
    with unchanged(edge, hub, "a"):
        edge.rest = bridges(hub, "a", "b")
        edge.write()
        assert edge.event("settings-reloaded")["added"] == ["b-to-hub"]
        await_links(hub, "a", "b")
        edge.rest += "nonsense = 1\n"
        edge.write()
        assert "nonsense" in edge.event("settings-not-reloaded")["reason"]
        edge.node, edge.rest = "watch-settings = false", bridges(hub, "a", "b")
        edge.write()
        eventually(lambda: len(edge.events("settings-reloaded")) == 2, "the watch ends itself")
    assert edge.events("settings-reloaded")[1]["settings"] == ["node.watch-settings"]
    assert len(edge.events("settings-not-reloaded")) == 1


# ------------------------------------------------------------------ at any time


def in_flight_to(edge: Node, hub: Node) -> None:
    """A message that the hub, which is paused now, has not confirmed: the bridge's stop waits for that."""
    stream = Stream(edge, "a")
    stream.send("a")
    all_arrive_once(hub, {"a": 1})
    hub.pause()
    stream.send("a")
    eventually(lambda: edge.status("a-to-hub")["in-flight"], "it is on its way")


def test_a_node_that_stops_takes_no_reload(
    make_node: MakeNode,
) -> None:
    hub = make_node("hub")
    edge = make_node("edge", bridges(hub, "a"), node='shutdown-timeout = "20s"')
    start_together(hub, edge)
    await_links(hub, "a")
    in_flight_to(edge, hub)
    edge.signal()
    eventually(lambda: not edge.ops.get("/ready").json["ready"], "it stops")
    reply = edge.ops.call("POST", "/v1/reload")
    reply.is_problem(503, "STOPPING")
    ended = reload(edge)
    assert (ended.code, ended.err) == (1, "core-bridge: STOPPING: the node is stopping\n")
    hub.resume()
    assert edge.wait() == 0


def test_a_reload_that_waits_for_a_bridge_ends_with_the_node(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", bridges(hub, "a"), node='shutdown-timeout = "1s"')
    start_together(hub, edge)
    await_links(hub, "a")
    in_flight_to(edge, hub)
    edge.rest = bridges(hub, "a", "b", a="max-hops = 3")
    edge.write()
    edge.signal(signal.SIGHUP)
    edge.await_state("a-to-hub", "STOPPING")
    edge.signal()
    assert edge.wait() == 0
    hub.resume()
    edge.start()  # by the new file
    all_arrive_once(hub, {"a": 2})
    await_links(hub, "a", "b")


def test_reloads_that_come_together_are_carried_out_one_after_the_other(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, *ADDRESSES)
    edge.rest = bridges(hub, *ADDRESSES, a="max-hops = 3")
    edge.write()
    answers: list[Any] = []
    with unchanged(edge, hub, "b", "c"):
        calls = [
            threading.Thread(target=lambda: answers.append(edge.ops.call("POST", "/v1/reload")))
            for _ in range(5)
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
    assert [reply.status for reply in answers] == [200] * 5
    assert sorted(reply.json["restarted"] for reply in answers) == [[], [], [], [], ["a-to-hub"]]


def test_reloads_under_load_lose_and_double_nothing(make_node: MakeNode) -> None:
    edge, hub = edge_and_hub(make_node, *ADDRESSES)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Stream(edge, *ADDRESSES) as stream:
        for number in range(12):
            names = [name for name in ADDRESSES if name == "a" or chance.random() < 0.7]
            changed = {name: f"max-hops = {number % 4 + 2}" for name in names if name != "a"}
            edge.rest = bridges(hub, *names, **changed)
            edge.write()
            hang_up(edge)
        edge.rest = bridges(hub, *ADDRESSES)
        edge.write()
        hang_up(edge)
    all_arrive_once(hub, stream.sent)
    assert len(edge.events("bridge-started", bridge="a-to-hub")) == 1
    assert edge.stop() == 0


def test_a_kill_amid_a_reload_loses_and_doubles_nothing(make_node: MakeNode) -> None:
    """The node starts by the file, whichever step of the reload it had reached."""
    edge, hub = edge_and_hub(make_node, *ADDRESSES)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Stream(edge, *ADDRESSES) as stream:
        for number in range(6):
            names = [name for name in ADDRESSES if chance.random() < 0.7]
            edge.rest = bridges(hub, *names, **dict.fromkeys(ADDRESSES, f"max-hops = {number + 2}"))
            edge.rest += f"[addresses.n{number}]\n"
            edge.write()
            edge.signal(signal.SIGHUP)
            threading.Event().wait(chance.random() * 0.15)  # somewhere in the reload, or before, or behind
            edge.kill()
            edge.start()
            assert edge.ops.get("/ready").json["bridges"].keys() == {f"{name}-to-hub" for name in names}
        edge.rest = bridges(hub, *ADDRESSES)
        edge.write()
        hang_up(edge)
    all_arrive_once(hub, stream.sent)


# ------------------------------------------------------------------ worker processes


def waits_by(node: Node, worker: int, interval_ms: int) -> bool:
    """Whether the bridge `one` of a worker waits for half to all of the interval."""
    last = node.events("bridge-disconnected", worker=worker, bridge="one")[-1]
    return bool(interval_ms / 2 <= last["retry-in-ms"] <= interval_ms)


def test_workers_run_by_the_reloaded_settings(make_node: MakeNode) -> None:
    """Without brokers: their bridges are CONNECTING, and say so with their settings."""
    kafka = '[connectors.{0}]\nurl = "kafka://127.0.0.1:{1}"\n'
    bridge = (
        '[[bridges]]\nname = "{}"\nsource-connector = "eu"\nqueue-name = "orders"\n'
        'static-connectors = ["us"]\n'
        "retry-interval = {}\nmax-retry-interval = {}\n"
    )
    ends = kafka.format("eu", 1) + kafka.format("us", 2)
    node = make_node("node", ends + bridge.format("one", 200, 200), node="workers = 2").start()
    pids = [node.event("worker-started", worker=worker)["pid"] for worker in (1, 2)]
    for worker in (1, 2):
        assert 100 <= node.event("bridge-disconnected", worker=worker, bridge="one")["retry-in-ms"] <= 200
    node.rest = ends + bridge.format("one", 200, 200) + bridge.format("two", 500, 500)
    node.write()
    assert outcome(node) == {"added": ["two"]}
    for worker in (1, 2):
        assert 250 <= node.event("bridge-disconnected", worker=worker, bridge="two")["retry-in-ms"] <= 500
    node.await_state("two", "CONNECTING")
    assert len(node.events("bridge-disconnected", bridge="one", worker=1)) == 1  # it was not touched
    node.rest = ends + bridge.format("one", 1200, 1200)
    node.write()
    assert outcome(node) == {"restarted": ["one"], "removed": ["two"]}
    for worker in (1, 2):
        eventually(partial(waits_by, node, worker, 1200), "it waits by the new settings")
    assert node.ops.get("/ready").json["bridges"].keys() == {"one"}
    assert [event["pid"] for event in node.events("worker-started")] == pids
    os.kill(pids[0], signal.SIGKILL)  # its successor reads the file as it is now
    eventually(lambda: len(node.events("worker-started", worker=1)) == 2, "it is started again")
    node.await_state("one", "CONNECTING")
    assert node.ops.call("POST", "/v1/bridges/one/stop").json["state"] == "STOPPED"
    assert node.stop() == 0
    assert not re.search("worker-order-refused|settings-not-reloaded", node.log.read_text())
