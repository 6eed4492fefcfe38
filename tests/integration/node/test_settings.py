"""A node that runs reads every key of its settings: one that no code asks for could have no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from bridge.assembly.credentials import Credentials
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from bridge.node.wiring import made_node
from bridge.settings import SettingsFile, load
from bridge.settings.addresses import AddressSettings, AddressSettingsTable
from bridge.settings.fields import Table
from bridge.settings.model import Settings
from bridge.settings.schema import keys, table_of
from tests.harness.eventually import until

#: Keys that are read only where something happens that does not happen here.
ELSEWHERE: Final = {
    "acceptor.insecure": "by the check of the settings",
    "node.log-level": "by the process, before it makes its node",
    "node.log-format": "by the process, before it makes its node",
    **dict.fromkeys(
        (
            "acceptor.certificate",
            "acceptor.key",
            "acceptor.client-ca",
            "connectors.*.ca",
            "connectors.*.certificate",
            "connectors.*.key",
        ),
        "with wss://",
    ),
    **dict.fromkeys(
        (
            "cluster-connections.*.allow-direct-connections-only",
            "cluster-connections.*.initial-connect-attempts",
            "cluster-connections.*.min-large-message-size",
            "cluster-connections.*.reconnect-attempts",
        ),
        "where another node is found (tests/cluster)",
    ),
}
SETTINGS: Final = """
[node]
name = "edge"
data-directory = "data"
[acceptor]
url = "ws://127.0.0.1:0"
[[acceptor.users]]
name = "shop"
token = "orders"
[operations]
url = "http://127.0.0.1:0"
[delivery-log]
kafka-connector = "eu"
[address-settings.orders]
max-size-bytes = "1MiB"
[addresses.orders]
queues = ["billing"]
[connectors.own]
url = "ws://127.0.0.1:1"
[connectors.other]
url = "ws://127.0.0.1:2"
[connectors.eu]
url = "kafka://127.0.0.1:1"
[connectors.eu.kafka]
security-protocol = "SASL_SSL"
sasl-plain-username = "u"
sasl-plain-password = "p"
[connectors.us]
url = "kafka://127.0.0.1:2"
[connectors.us.kafka]
security-protocol = "SASL_PLAINTEXT"
sasl-mechanism = "OAUTHBEARER"
sasl-oauth-token-file = "token"
[[bridges]]
name = "to-other"
queue-name = "orders"
static-connectors = ["other"]
transformer = "tests.harness.transformers:change_all"
[[bridges]]
name = "to-kafka"
queue-name = "orders"
static-connectors = ["us"]
[[bridges]]
name = "between"
source-connector = "eu"
queue-name = "orders"
static-connectors = ["us"]
[[bridges]]
name = "from-kafka"
source-connector = "eu"
queue-name = "stock"
static-connectors = ["journal"]
[[cluster-connections]]
name = "main"
connector-ref = "own"
static-connectors = ["other"]
"""


def every_key(model: type[Table] = Settings, path: str = "") -> dict[tuple[str, str], list[str]]:
    """The keys of the model, by the attribute and the class of the values that hold it when a node runs."""
    found: dict[tuple[str, str], list[str]] = {}
    for key, field in keys(model).items():
        attribute = next(name for name, one in model.model_fields.items() if one is field)
        table, many = table_of(field)
        if table is None:
            holder = AddressSettings if model is AddressSettingsTable else model
            found.setdefault((holder.__name__, attribute), []).append(path + key)
        else:
            assert issubclass(table, Table)
            found |= every_key(table, f"{path}{key}.*." if many else f"{path}{key}.")
    return found


async def test_every_key_is_read_where_a_node_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t")
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS)
    settings = load(file, {})
    read: set[tuple[str, str]] = set()

    def record(table: Any, name: str) -> Any:
        read.add((type(table).__name__, name))
        return object.__getattribute__(table, name)

    monkeypatch.setattr(Table, "__getattribute__", record)
    monkeypatch.setattr(AddressSettings, "__getattribute__", record)
    wanted = every_key()

    def unread() -> set[str]:
        return {name for place, names in wanted.items() if place not in read for name in names}

    node = made_node(settings, SettingsFile(file, {}), Credentials(settings))
    try:
        await node.start()
        assert node.journal is not None
        await node.journal.commit(Transaction([Sent.of("orders", Message(b"waits"))]))
        await until(lambda: unread() <= {*ELSEWHERE, "node.shutdown-timeout"}, "all others are read")
    finally:
        await node.stop()
    assert unread() == ELSEWHERE.keys()
