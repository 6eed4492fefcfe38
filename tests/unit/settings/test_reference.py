"""The settings contract, `reference.toml`: a copy of the shared file, held against the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bridge.settings import Settings, SettingsInvalid, load
from bridge.settings.schema import keys, table_of

REFERENCE = Path(__file__).parent / "reference.toml"
ENVIRON = {"HUB_TOKEN": "token", "HOSTNAME": "host"}
#: Keys whose values in the reference are examples, marked "required" or "no default" there.
EXAMPLES = {
    "node.name",
    "acceptor.users[0].name",
    "acceptor.users[0].token",
    "acceptor.users[0].send",
    "connectors.self.url",
    "connectors.hub.url",
    "connectors.hub.token",
    "connectors.us.url",
    "bridges[0].name",
    "bridges[0].queue-name",
    "bridges[0].static-connectors",
    "cluster-connections[0].name",
    "cluster-connections[0].connector-ref",
    "cluster-connections[0].static-connectors",
}


@pytest.fixture(scope="module")
def reference() -> Settings:
    return load(REFERENCE, ENVIRON)


def tables(table: BaseModel, path: str = "") -> dict[str, BaseModel]:
    """Every table of the settings, by its path."""
    found = {path: table} if path else {}
    for key, field in keys(type(table)).items():
        name = next(name for name, item in type(table).model_fields.items() if item is field)
        value = getattr(table, name)
        place = f"{path}.{key}" if path else key
        items: dict[str, Any] = {}
        match value:
            case BaseModel():
                items[place] = value
            case dict():
                items.update((f"{place}.{name}", item) for name, item in value.items())
            case tuple():
                items.update((f"{place}[{index}]", item) for index, item in enumerate(value))
        for inner, item in items.items():
            if isinstance(item, BaseModel):
                found.update(tables(item, inner))
    return found


def values(table: BaseModel) -> dict[str, Any]:
    """The plain values of one table, by key."""
    pairs = zip(keys(type(table)).items(), type(table).model_fields, strict=True)
    return {key: getattr(table, name) for (key, field), name in pairs if table_of(field)[0] is None}


def test_every_value_of_the_reference_is_the_default(reference: Settings) -> None:
    """O6."""
    required = {
        "name": "x",
        "url": "ws://x:1",
        "queue-name": "x",
        "static-connectors": ["x"],
        "connector-ref": "x",
    }
    checked = 0
    for path, table in tables(reference).items():
        model = type(table)
        given = {key: required[key] for key, field in keys(model).items() if field.is_required()}
        defaults = model.model_validate(given, context={"directory": REFERENCE.parent})
        for key, default in values(defaults).items():
            if f"{path}.{key}" not in EXAMPLES:
                assert values(table)[key] == default, f"{path}.{key}"
                checked += 1
    assert checked > 110


def test_the_reference_names_every_key_of_the_model(reference: Settings) -> None:
    by_model: dict[type[BaseModel], set[str]] = {}
    for table in tables(reference).values():
        written = {type(table).model_fields[name].alias or "" for name in table.model_fields_set}
        by_model.setdefault(type(table), set()).update(written)
    unwritten = {
        f"{model.__name__}.{key}"
        for model, written in by_model.items()
        for key in keys(model)
        if key not in written
    }
    # In a comment, because it has no default; and what is younger than the shared file.
    assert unwritten == {
        "AddressSettingsTable.id-cache-size",
        "Bridge.max-rate",
        "Bridge.open-transaction-warn-after",
        "Bridge.schedule",
        "ClusterConnection.allow-direct-connections-only",
        "Connector.proxy",
        "Node.watch-settings",
        "Operations.partition-metrics",
    }


def test_nothing_of_the_reference_is_refused(reference: Settings) -> None:
    assert load(REFERENCE, ENVIRON) == reference


def test_the_reference_needs_its_variables() -> None:
    with pytest.raises(SettingsInvalid) as refused:
        load(REFERENCE, {})
    rules = {problem.key: problem.rule for problem in refused.value.problems}
    assert rules["connectors.self.url"].startswith("environment variable HOSTNAME must be set")
    assert rules["connectors.hub.token"].startswith("environment variable HUB_TOKEN must be set")
    assert rules["acceptor.users[0].token (orders-service)"].startswith("environment variable HUB_TOKEN")
    assert len(rules) == 3
