"""The deployments in examples/cluster: one settings file holds on every node, and each variable is given.

The YAML is read by the few forms that it is written in: no parser of it is installed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from bridge.cli import main
from bridge.settings import load
from bridge.settings.prefixes import Prefixes

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples" / "cluster"
SETTINGS: Final = EXAMPLES / "settings.toml"
COMPOSE: Final = (EXAMPLES / "compose.yaml").read_text("utf-8")
KUBERNETES: Final = (EXAMPLES / "kubernetes.yaml").read_text("utf-8")
NODES: Final = [f"core-bridge-{number}" for number in range(3)]
TOKENS: Final = {
    name: f"a-long-enough-{name}" for name in ("CLUSTER_TOKEN", "APPLICATION_TOKEN", "OPERATIONS_TOKEN")
}


def variables() -> set[str]:
    """The variables that the settings need; those with a default are not among them."""
    return set(re.findall(r"\$\{([A-Z_]+)\}", SETTINGS.read_text("utf-8")))


@pytest.mark.parametrize("node", NODES)
def test_one_settings_file_holds_on_every_node(
    node: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**TOKENS, "HOSTNAME": node}.items():
        monkeypatch.setenv(name, value)
    assert main(["validate", "--settings", str(SETTINGS)]) == 0
    assert capsys.readouterr().out.endswith("settings.toml: ok\n")
    settings = load(SETTINGS, {**TOKENS, "HOSTNAME": node})
    assert settings.node.name == node
    assert settings.connectors["self"].url == f"ws://{node}.core-bridge:61616"
    (connection,) = settings.cluster_connections
    assert connection.discovery == "dns://core-bridge:61616"
    assert all(Prefixes.of(connection.address).covers(address) for address in settings.addresses)


def test_compose_gives_every_node_its_name_its_alias_its_volume_and_every_variable() -> None:
    services = re.findall(r"^  (core-bridge-\d):\n((?:    .*\n)+)", COMPOSE, re.MULTILINE)
    assert [name for name, _ in services] == NODES
    for number, (name, text) in enumerate(services):
        assert f"HOSTNAME: {name}}}" in text
        assert f"aliases: [core-bridge, {name}.core-bridge]" in text
        assert f'"data-{number}:/var/lib/core-bridge"' in text
        assert '"./settings.toml:/etc/core-bridge/settings.toml:ro"' in text
        assert f"  data-{number}: {{}}\n" in COMPOSE
    shared = set(re.findall(r"^    ([A-Z_]+): \$\{\1:\?\}$", COMPOSE, re.MULTILINE))
    assert shared | {"HOSTNAME"} == variables()


def test_kubernetes_gives_every_pod_its_name_its_volume_and_every_variable() -> None:
    kinds = re.findall(r"^kind: (\w+)", KUBERNETES, re.MULTILINE)
    assert kinds == ["Service", "Service", "PodDisruptionBudget", "StatefulSet"]
    headless, _, _, pods = KUBERNETES.split("\n---\n")
    assert "clusterIP: None" in headless
    assert "name: core-bridge\n" in headless
    assert "serviceName: core-bridge\n" in pods
    named = set(re.findall(r"- \{name: ([A-Z_]+), value", pods))
    assert named == variables() | {"CLUSTER_DOMAIN"}
    assert "HOSTNAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}" in pods
    assert "readinessProbe: {httpGet: {path: /ready, port: operations}}" in pods
    assert "livenessProbe: {httpGet: {path: /ping, port: operations}}" in pods
    assert "mountPath: /var/lib/core-bridge" in pods
    assert load(SETTINGS, {**TOKENS, "HOSTNAME": "a"}).node.data_directory == Path("/var/lib/core-bridge")
    ports = dict(re.findall(r"name: (messages|operations), containerPort: (\d+)", pods))
    settings = load(SETTINGS, {**TOKENS, "HOSTNAME": "a"})
    assert settings.acceptor is not None
    assert settings.acceptor.url.endswith(f":{ports['messages']}")
    assert settings.operations is not None
    assert settings.operations.url.endswith(f":{ports['operations']}")


def test_a_pod_has_as_long_to_end_as_a_node_may_take() -> None:
    (grace_s,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", KUBERNETES)
    (stop_s,) = re.findall(r"stop_grace_period: (\d+)s", COMPOSE)
    shutdown_ms = load(SETTINGS, {**TOKENS, "HOSTNAME": "a"}).node.shutdown_timeout_ms
    assert int(grace_s) * 1000 > shutdown_ms
    assert int(stop_s) * 1000 > shutdown_ms
