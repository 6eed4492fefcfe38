"""README's tour with Kafka works line by line, on real clusters and with nothing but the shipped commands.

Topics and bridges get names of this test's own, clusters and node listen elsewhere; all else is as it stands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.demo.ports import free_ports
from tests.acceptance.test_readme import KAFKA_TOUR, blocks, matches, steps
from tests.harness.forked import ROOT
from tests.harness.watchdog import WATCHDOG
from tests.kafka.conftest import Clusters

PATIENCE_S = 90.0
BRIDGES = ("shop-to-eu", "eu-to-us", "us-to-desk")
TOPIC = "shop.orders"


@dataclass(frozen=True)
class Tour:
    directory: Path
    text: str
    variables: dict[str, str]


@pytest.fixture
def tour(clusters: Clusters, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Tour]:
    port, operations_port = free_ports(2)
    new = {name: unique(name) for name in (TOPIC, *BRIDGES)}
    new |= {"127.0.0.1:19092": clusters.a.bootstrap, "127.0.0.1:19192": clusters.b.bootstrap}
    new |= {"localhost:61616": f"localhost:{port}", "localhost:8161": f"localhost:{operations_port}"}
    text = KAFKA_TOUR
    for old, own in new.items():
        assert old in text, old
        text = text.replace(old, own)
    (settings,) = blocks("toml", text)
    for table, url in (
        ("acceptor", f"ws://127.0.0.1:{port}"),
        ("operations", f"http://127.0.0.1:{operations_port}"),
    ):
        settings = settings.replace(f"[{table}]\n", f'[{table}]\nurl = "{url}"\n')
    (tmp_path / "kafka.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    # The interpreter takes the place of the shell that starts it: node.pid must be the node's.
    shim = tmp_path / "core-bridge"
    shim.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m bridge "$@"\n', encoding="utf-8"
    )
    shim.chmod(0o755)
    # The node is not at the default ports: commands take them from its settings.
    where = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CORE_BRIDGE_SETTINGS": "kafka.toml"}
    yield Tour(tmp_path, text, os.environ | where)
    if (tmp_path / "node.pid").exists():
        ended((tmp_path / "node.pid").read_text().strip())
    journals = {f"core-bridge.{new[name]}.journal" for name in BRIDGES}
    for cluster in clusters:
        for topic in cluster.topics() & {new[TOPIC], *journals}:
            cluster.delete_topic(topic)


def ended(pid: str) -> None:
    """Make sure that nothing is left of the node, which is no child of ours."""
    try:
        process = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return
    with os.fdopen(process):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def test_the_tour_with_kafka_works_line_by_line(tour: Tour) -> None:
    taken = list(steps(tour.text))
    assert len(taken) > 10
    for step in taken:
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=tour.directory,
            env=tour.variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            start_new_session=True,
        )
        if "echo $! > node.pid" in step.command:
            WATCHDOG.watch(os.getpgid(int((tour.directory / "node.pid").read_text())))
        log = tour.directory / "node.log"
        shown = f"{step.command}\n{done.stdout}\n{log.read_text()[-3_000:] if log.exists() else ''}"
        assert matches(step.output, done.stdout), shown
        assert (done.stderr, done.returncode) == ("", 0), shown
