"""Each alert of docs/operations.md fires while its fault is there, and not before."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridge.relay.filtering import DOUBTED_AFTER
from tests.acceptance.test_operations import BRIDGE, hub_and_edge, limit_files, operate
from tests.harness.alerts import HALF_A_SECOND, alerts, fires, firing, scraped
from tests.harness.api import Api
from tests.harness.certificates import certificate_until
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

SMALL = '[address-settings.orders]\nmax-size-bytes = "4KiB"\naddress-full-policy = "FAIL"\n'


def relayed(edge: Node, *bodies: str) -> None:
    """Stored, and confirmed by the bridge's target."""
    assert edge.api.commit(*({"address": "orders", "body": body} for body in bodies)).status == 200
    eventually(lambda: edge.lag("orders") == 0, "they are confirmed")


def test_a_healthy_pair_has_no_alert(make_node: MakeNode) -> None:
    """Nor has one whose bridge was told to stop or to pause. How full the disk is is the machine's."""
    _, edge = hub_and_edge(make_node)
    before = scraped(edge)
    relayed(edge, "1", "2")

    def found() -> list[str]:
        now = scraped(edge)
        return [name for name, alert in alerts().items() if firing(alert, before, now, later_s=301)]

    assert set(found()) <= {"DiskFillsUp"}
    for verb, state in (("pause", "PAUSED"), ("stop", "STOPPED")):
        assert operate(edge, verb) == (200, state)
        assert set(found()) <= {"DiskFillsUp"}


# ------------------------------------------------------------------ bridges


def test_a_target_that_is_down(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    relayed(edge, "1")
    with fires("BridgeNotConnected", edge, bridge=BRIDGE):
        hub.kill()


def test_a_target_that_was_never_there(make_node: MakeNode) -> None:
    """The bridge is added by a reload to a node that is well."""
    hub = make_node("hub")
    edge = make_node("edge").start()
    with fires("BridgeNotConnected", edge, bridge=BRIDGE):
        edge.rest = bridge_to(hub)
        edge.write()
        assert edge.ops.call("POST", "/v1/reload").status == 200


def test_messages_that_wait_for_a_target_that_is_down(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    relayed(edge, "1")
    with fires("BridgeBehind", edge, bridge=BRIDGE, instead=HALF_A_SECOND):
        hub.kill()
        assert edge.api.send("orders", b"2").status == 200


def test_messages_that_wait_for_a_target_that_is_full(make_node: MakeNode) -> None:
    """The bridge has its target, which says why it takes nothing."""
    hub = make_node("hub", rest=SMALL + '[addresses.orders]\nqueues = ["q"]\n')
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.await_state(BRIDGE, "RUNNING")
    relayed(edge, "1")
    with (
        fires("AddressFillsUp", hub, address="orders"),
        fires("AddressFull", hub, address="orders"),
        fires("BridgeBehind", edge, bridge=BRIDGE, instead=HALF_A_SECOND),
    ):
        for _ in range(6):
            assert edge.api.send("orders", b"x" * 1000).status == 200
    edge.await_state(BRIDGE, "WAITING")
    assert not firing(alerts()["BridgeNotConnected"], scraped(edge))


def test_a_target_that_stands_still(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node)
    relayed(edge, "1")
    with fires("BridgeStalled", edge, bridge=BRIDGE, later_s=301):
        hub.pause()
        assert edge.api.send("orders", b"2").status == 200
    assert edge.bridge_state(BRIDGE) == "RUNNING", "connected, and nothing moves"
    hub.resume()


def test_a_bridge_that_failed(make_node: MakeNode) -> None:
    hub, edge = hub_and_edge(make_node, reconnect_attempts="0")
    with (
        fires("BridgeFailed", edge, bridge=BRIDGE),
        fires("NodeNotReady", edge),
        fires("BridgeNotConnected", edge, bridge=BRIDGE),
    ):
        hub.kill()


@pytest.mark.parametrize("why", ["too large for the hub", "its transformer raises"])
def test_dead_letters(make_node: MakeNode, why: str) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    transformer = {"transformer": '"tests.harness.transformers:ByBody"', "max_delivery_attempts": "1"}
    keys = transformer if "transformer" in why else {}
    edge = make_node("edge", rest=bridge_to(hub, **keys))
    start_together(hub, edge)
    relayed(edge, "1")
    with fires("DeadLetters", edge, bridge=BRIDGE):
        assert edge.api.send("orders", b"raise" if keys else b"x" * 2000).status == 200


def test_a_filter_that_never_matches(make_node: MakeNode) -> None:
    _, edge = hub_and_edge(make_node, filter='"amout > 10"')
    with fires("FilterTakesNothing", edge, bridge=BRIDGE):
        messages = [{"address": "orders", "body": "x", "headers": {"amount": "12"}}] * DOUBTED_AFTER
        assert edge.api.commit(*messages).status == 200


# ------------------------------------------------------------------ addresses


def test_a_full_address(make_node: MakeNode) -> None:
    node = make_node(rest=SMALL + '[addresses.orders]\nqueues = ["q"]\n').start()
    with fires("AddressFillsUp", node, address="orders"), fires("AddressFull", node, address="orders"):
        while node.api.send("orders", b"x" * 500).status == 200:
            pass


def test_a_queue_without_readers(make_node: MakeNode) -> None:
    """And not the one beside it, which has a reader."""
    node = make_node(rest='[addresses.orders]\nqueues = ["read", "mistyped"]\n').start()
    assert not firing(alerts()["QueueWithoutReaders"], scraped(node), scraped(node))
    assert node.api.send("orders", b"1").status == 200
    before = scraped(node)
    lease, _ = node.api.lease("orders", "read")
    assert node.api.settle("acknowledge", "orders", "read", lease=lease).status == 204
    between = scraped(node)
    assert node.api.send("orders", b"2").status == 200
    found = firing(alerts()["QueueWithoutReaders"], before, between, scraped(node))
    assert [dict(series)["queue"] for series in found] == ["mistyped"]


def test_a_queue_that_only_grows(make_node: MakeNode) -> None:
    node = make_node(rest='[addresses.orders]\nqueues = ["mistyped"]\n').start()
    with fires("QueueWithoutReaders", node, address="orders", queue="mistyped"):
        assert node.api.send("orders", b"1").status == 200


def test_ids_that_are_forgotten_early(make_node: MakeNode) -> None:
    """A cache of three, and more than 18 in the hour beyond it: less than 600 s for each."""
    node = make_node(rest="[address-settings.orders]\nid-cache-size = 3\n[addresses.orders]\n").start()
    with fires("IdsForgottenEarly", node, address="orders"):
        for number in range(25):
            assert node.api.send("orders", b"x", Duplicate_Id=f"{number}").status == 200


def test_messages_that_no_queue_takes(make_node: MakeNode) -> None:
    queue = '{ name = "q", filter = "x = 1" }'
    node = make_node(rest=f"[addresses.orders]\nqueues = [{queue}]\n").start()
    with fires("MessagesUnrouted", node, address="orders"):
        assert node.api.send("orders", b"x").status == 200


# ------------------------------------------------------------------ the node


def test_a_node_that_can_store_nothing(make_node: MakeNode) -> None:
    """Its disk has room; its user has none left (a quota)."""
    node = make_node().start()
    with ThreadPoolExecutor(1) as pool:
        with fires("NodeNotReady", node):
            lift = limit_files(node, 1_000_000)
            sending = pool.submit(lambda: [node.api.send("orders", b"x" * 100_000).status for _ in range(12)])
        lift()
        assert sending.result(20) == [200] * 12


def in_small_volume(directory: Path) -> tuple[str, ...]:
    """Runs a node whose data directory is a volume of 40 MiB."""
    mount = 'mount -t tmpfs -o size=40m tmpfs "$0" && exec "$@"'
    return ("unshare", "--mount", "--map-root-user", "sh", "-c", mount, str(directory))


def test_a_full_disk(make_node: MakeNode, tmp_path: Path) -> None:
    if subprocess.run([*in_small_volume(tmp_path), "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare and mount make the volume of this test")
    node = make_node()
    node.data.mkdir()
    node.program = (*in_small_volume(node.data), sys.executable, "-m", "bridge")
    node.start()
    assert node.process is not None
    volume = Path(f"/proc/{node.process.pid}/root{node.data}")
    left = 2 * 1024 * 1024
    with fires("DiskFillsUp", node):
        (volume / "filler").write_bytes(bytes(int(node.metrics()["core_bridge_disk_free_bytes"]) - left))


def test_a_certificate_that_expires_soon_and_one_that_has_expired(
    make_node: MakeNode, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    made = {
        days: certificate_until(tmp_path, f"{days}", f"{now + timedelta(days=days):%Y%m%d%H%M%SZ}")
        for days in (30, 13, -1)
    }

    def keys(days: int) -> str:
        return f'certificate = "{made[days]}"\nkey = "{made[days].with_suffix(".key")}"\n'

    node = make_node(scheme="wss", acceptor=keys(30)).start()
    for days in (13, -1):
        with fires("CertificateExpires", node, setting="acceptor.certificate"):
            node.stop()
            node.acceptor = keys(days)
            node.start()
        node.stop()
        node.acceptor = keys(30)
        node.start()


def test_a_reader_of_the_log_that_stands_still(make_node: MakeNode) -> None:
    """A pipe of 4 KiB, and the node's buffer of 1 MiB beyond it, are filled by lines of 6 kB."""
    node = make_node()
    os.mkfifo(node.log)
    reader = os.open(node.log, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    try:
        node.spawn()
        node.ops.await_status("/ready", 200)
        with fires("LogLinesDropped", node):
            for number in range(250):
                assert node.api.make_queue("a", "q", filter=f"x = '{number:0>3000}'") in (200, 201)
        assert node.stop() == 0
    finally:
        os.close(reader)
        node.log.unlink()


def test_a_token_that_is_not_known(make_node: MakeNode) -> None:
    node = make_node(acceptor='tokens = ["known"]\n').start()
    with fires("RequestsRefused", node, listener="acceptor", code="UNAUTHENTICATED"):
        Api(node.port, "guessed").send("orders", b"x").is_problem(401, "UNAUTHENTICATED")
