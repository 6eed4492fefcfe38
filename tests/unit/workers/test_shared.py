from __future__ import annotations

from pathlib import Path

from bridge.settings import load
from bridge.workers.shared import bridges_in_workers

SETTINGS = """
[connectors.a]
url = "kafka://127.0.0.1:9092"
[connectors.b]
url = "kafka://127.0.0.1:9093"
[connectors.hub]
url = "ws://127.0.0.1:61616"
"""


def bridge(name: str, source: str, target: str) -> str:
    return (
        f'[[bridges]]\nname = "{name}"\nsource-connector = "{source}"\n'
        f'static-connectors = ["{target}"]\nqueue-name = "orders"\n'
    )


def test_only_bridges_from_kafka_to_kafka_run_in_workers(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    ends = {
        "kafka-to-kafka": ("a", "b"),
        "kafka-to-node": ("a", "hub"),
        "kafka-to-journal": ("a", "journal"),
        "journal-to-kafka": ("journal", "b"),
        "journal-to-node": ("journal", "hub"),
        "and-back": ("b", "a"),
    }
    file.write_text(SETTINGS + "".join(bridge(name, *pair) for name, pair in ends.items()))
    settings = load(file, {})
    assert [found.name for found in bridges_in_workers(settings)] == ["kafka-to-kafka", "and-back"]
