"""docs/operations.md is held to what it describes: metrics, log events, states, settings."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from bridge.relay.lifecycle import State
from bridge.runtime.logs import DROPPED_EVENT, LIBRARY_EVENT
from bridge.runtime.metrics import METRICS, Metric
from bridge.settings import load
from cluster import metrics as cluster_metrics
from tests.harness.alerts import alerts
from tests.harness.promql import Scrape, evaluate

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "operations.md"
VARIABLES: Final = {"SHOP_TOKEN": "a", "OPERATIONS_TOKEN": "b", "HUB_TOKEN": "c", "POD_NAME": "shop-0"}

#: Of a node, and of one with cluster connections.
EVERY_METRIC: Final = (
    *METRICS,
    *(metric for metric in vars(cluster_metrics).values() if isinstance(metric, Metric)),
)

_KEBAB: Final = re.compile(r"[a-z]+(-[a-z]+)*")
_METHODS: Final = ("debug", "info", "warning", "error", "log")
#: Without such a call a module logs nothing, and need not be parsed.
_LOGS: Final = re.compile(rf"\.({'|'.join(_METHODS)})\(|rate_limited\(")


def section(heading: str) -> str:
    text = DOCUMENT.read_text("utf-8")
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def metric_row(metric: Metric) -> str:
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"


def events_in_code() -> set[str]:
    """Every event that some module logs, and those that are counted and logged at a bounded rate."""
    found = {DROPPED_EVENT, LIBRARY_EVENT}
    for path in (path for package in ("bridge", "cluster") for path in (ROOT / package).rglob("*.py")):
        text = path.read_text("utf-8")
        if not _LOGS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name == "_event":
                found.update(texts(node.body))
            if not isinstance(node, ast.Call):
                continue
            receiver, _, method = ast.unparse(node.func).rpartition(".")
            logs = (
                method in _METHODS and ("log" in receiver or receiver == "get()")
            ) or method == "rate_limited"
            for argument in node.args[:2] if logs else ():
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.add(argument.value)
    return {event for event in found if _KEBAB.fullmatch(event)}


def texts(body: list[ast.stmt]) -> set[str]:
    """Every text in a function that names an event."""
    constants = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Constant)]
    return {node.value for node in constants if isinstance(node.value, str)}


def test_the_table_of_metrics_is_what_a_scrape_has() -> None:
    rows = [line for line in section("Metrics").splitlines() if line.startswith("| `core_bridge_")]
    documented = [row for row in rows if row.count("|") == 5]
    assert documented == [metric_row(metric) for metric in EVERY_METRIC]


def test_metrics_that_alerts_use_exist() -> None:
    names = set(re.findall(r"core_bridge_[a-z_]+", DOCUMENT.read_text("utf-8")))
    assert names == {metric.name for metric in EVERY_METRIC}


def test_every_alert_can_be_evaluated() -> None:
    for alert in alerts().values():
        assert evaluate(alert.expression, [Scrape.of(0, {})], 0) == {}


def test_every_alert_is_fired_by_a_test() -> None:
    """Where `fires` is called, the test fails unless the alert does."""
    calls = [
        ast.literal_eval(node.args[0])
        for path in (ROOT / "tests" / "acceptance").rglob("test_alerts.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "fires"
    ]
    assert {*calls} == {*alerts()}


def test_the_table_of_events_is_what_the_code_logs() -> None:
    documented = re.findall(r"^\| `([a-z-]+)` \|", section("Log events"), re.MULTILINE)
    assert sorted(documented) == sorted(events_in_code())


def test_every_state_of_a_bridge_is_explained() -> None:
    first_cells = "".join(re.findall(r"^\| (`[A-Z`, ]+) \|", section("States of a bridge"), re.MULTILINE))
    assert sorted(re.findall(r"[A-Z]+", first_cells)) == sorted(state.value for state in State)


@pytest.mark.parametrize("heading", ["As a container", "As a sidecar"])
def test_the_settings_of_the_examples_hold(heading: str, tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", section(heading), re.DOTALL)
    path = tmp_path / "settings.toml"
    path.write_text(example, "utf-8")
    settings = load(path, VARIABLES)
    assert settings.acceptor is not None
    assert settings.operations is not None
    assert settings.node.data_directory == Path("/var/lib/core-bridge")
