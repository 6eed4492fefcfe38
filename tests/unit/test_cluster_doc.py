"""docs/cluster.md is held to the code: its settings, its table of modes, what it shows of the command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, get_args

import pytest

from bridge.cli.cluster_status import describe_cluster
from bridge.messages.addresses import RoutingType
from bridge.settings import load
from bridge.settings.clusters import ClusterConnection
from bridge.settings.schema import keys
from cluster.drain import Phase
from cluster.routing import Balancing, Place
from tests.unit.cluster.rig import B
from tests.unit.cluster.test_routing import ADDRESS, router, turns

DOCUMENT: Final = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")
MODES: Final[tuple[Balancing, ...]] = get_args(Balancing)


def rows(heading: str) -> list[list[str]]:
    """The rows of the table that begins with this heading, the heading first."""
    lines = DOCUMENT[DOCUMENT.index(heading) :].splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("|"))
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end] if "---" not in line
    ]


@pytest.mark.parametrize("node", ["1", "2"])
def test_the_settings_to_try_hold_for_both_nodes(node: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)[0], "utf-8")
    variables = {"NODE": f"node-{node}", "PORT": f"6161{node}", "OPERATIONS_PORT": f"816{node}"}
    settings = load(path, variables)
    assert settings.node.name == f"node-{node}"
    assert settings.cluster_connections[0].static_connectors == ("first",)


def test_every_other_example_of_settings_holds(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    _, *others = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(others) == 2
    for text in others:
        path.write_text(text, "utf-8")
        load(path, {})


def test_every_key_of_a_cluster_connection_is_explained() -> None:
    explained = [key for key, *_ in rows("| key | default | meaning |")[1:]]
    assert re.findall(r"`([a-z-]+)`", " ".join(explained)) == sorted(
        keys(ClusterConnection), key=lambda key: " ".join(explained).index(f"`{key}`")
    )


def test_ten_messages_go_where_the_table_of_modes_says() -> None:
    heading, *shown = rows("| queue at | readers at |")
    modes = [mode.strip("`") for mode in heading[2:]]
    assert sorted(modes) == sorted(MODES)
    assert len(shown) == 5
    for queue, readers, *expected in shown:
        nodes = re.findall(r"n[01]", queue)
        types: tuple[RoutingType, ...] = get_args(RoutingType)
        for routing_type in [one for one in types if one in queue] or types:
            places = {
                "n0": Place("", readers="n0" in readers),
                "n1": Place(B, next_hop=B, readers="n1" in readers),
            }
            for mode, cell in zip(modes, expected, strict=True):
                of = router({ADDRESS: [places[node] for node in nodes]}, mode, routing_type)  # type: ignore[arg-type]
                found = turns(of, 10, [ADDRESS] if "n0" in nodes else [])
                here, there = map(int, re.findall(r"\d+", cell))
                assert (found.count(""), found.count(B)) == (here, there), (queue, readers, mode)


def test_every_phase_of_a_drain_is_explained() -> None:
    assert [phase for phase, *_ in rows("| phase | what happens |")[1:]] == [phase.value for phase in Phase]


def test_the_status_that_it_shows_has_the_commands_columns() -> None:
    shown = DOCUMENT[DOCUMENT.index("connection my-cluster") :].split("```")[0].splitlines()
    connection = {
        "name": "my-cluster", "address": "", "message-load-balancing": "ON_DEMAND", "max-hops": 1,
        "state": "RUNNING", "reason": "",
    }  # fmt: skip
    nodes = [
        {"node": "a", "name": "node-1", "url": "ws://127.0.0.1:61616", "state": "UP", "version": [1, 3],
         "reachable": True, "hops": 0, "bridge": None, "queues": [_queue(0)]},
        {"node": "b", "name": "node-2", "url": "ws://127.0.0.1:61617", "state": "UP", "version": [1, 4],
         "reachable": True, "hops": 1, "queues": [_queue(1)],
         "bridge": {"state": "RUNNING", "sent": 1, "acknowledged": 1, "in-flight": 0, "lag": 0}},
    ]  # fmt: skip
    given = {"connections": [connection], "nodes": nodes, "disagreements": []}
    assert shown == list(describe_cluster(given))


def _queue(readers: int) -> dict[str, object]:
    return {
        "address": "jobs", "queue": "jobs", "readers": readers, "filter": "", "routing-type": "ANYCAST"
    }  # fmt: skip
