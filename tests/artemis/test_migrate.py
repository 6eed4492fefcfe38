"""`core-bridge migrate` on the files that Artemis itself ships, and its table against Artemis's schema."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from bridge.migrate.connectors import Transport
from bridge.migrate.draft import Kind
from bridge.migrate.migration import Migration, migrate
from bridge.migrate.values import fill
from bridge.settings.artemis import SCOPES
from tests.artemis.shipped import HERE, OPTIONS, brokers, schema
from tests.filters.artemis import compiled
from tests.unit.migrate.places import dropped
from tests.unit.migrate.test_random_documents import random_url
from tests.unit.migrate.test_samples import placeholders, problems

pytestmark = [pytest.mark.artemis_long, pytest.mark.processes]

URLS = HERE / "Urls.java"
#: The type in the schema for each element of the table; URLs' parameters are in none.
TYPES = {
    "core": "configurationType",
    "address-setting": "addressSettingType",
    "address": "addressType",
    "queue": "queueType",
    "bridge": "bridgeType",
    "cluster-connection": "cluster-connectionType",
    "divert": "divertType",
}
#: Groups of the schema, whose elements are in the table, and the pattern of a table of the settings.
GROUPS = {"discovery-type", "match"}


@pytest.fixture(scope="module")
def migrations(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Migration]:
    """What becomes of each file, by the options that it was created with."""
    found = {}
    for name, text in brokers():
        path = tmp_path_factory.mktemp(name) / "broker.xml"
        path.write_text(text, "utf-8")
        found[name] = migrate(path, {})
    return found


def test_every_element_of_artemis_schema_is_in_the_table() -> None:
    types = schema()
    missing = {scope: types[name] - set(SCOPES[scope]) - GROUPS for scope, name in TYPES.items()}
    assert not any(missing.values()), missing
    assert sum(len(types[name]) for name in TYPES.values()) > 250


@pytest.mark.parametrize("option", OPTIONS)
def test_a_shipped_file_becomes_settings_that_hold_and_nothing_in_it_is_unknown(
    option: str, migrations: Mapping[str, Migration], tmp_path: Path
) -> None:
    migration = migrations[option]
    assert problems(migration.text, tmp_path) <= placeholders(migration.text)
    assert [str(remark) for remark in migration.remarks if "not known" in remark.text] == []
    assert migration.count(Kind.LEFT) > 3
    assert "t0p-s3cret" not in migration.text + "".join(map(str, migration.remarks))


@pytest.mark.parametrize("option", OPTIONS)
def test_nothing_of_a_shipped_file_is_dropped_in_silence(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = dict(brokers())[option]
    assert [str(spot) for spot in dropped(text.encode())] == []


def test_a_random_url_leads_where_artemis_itself_says(tmp_path: Path) -> None:
    urls = [fill(random_url(Random(f"tls:{number}"))[0], {}).text for number in range(1000)]
    written = tmp_path / "urls.txt"
    written.write_text("".join(url.replace("\n", "\\n").replace("\t", "\\t") + "\n" for url in urls))
    command = [*compiled(URLS, tmp_path), str(written)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert len(said) == len(urls)
    compared = 0
    for url, answer in zip(urls, said, strict=True):
        if answer == "refused" or answer.startswith("null "):  # a list without parentheses: no host
            continue
        compared += 1
        transport = Transport.of(url)
        assert transport is not None, url
        found = f"{transport.host} {transport.port or -1} {str(transport.encrypted).lower()}"
        assert found == answer, url
    assert compared > 500


def test_a_shipped_cluster_keeps_its_name_mode_and_acceptor(migrations: Mapping[str, Migration]) -> None:
    text = migrations["static"].text
    for line in (
        'name = "my-cluster"',
        'message-load-balancing = "ON_DEMAND"',
        'static-connectors = ["artemis"]',
        'url = "ws://node-1.example:61616"',
        "[addresses.DLQ]",
    ):
        assert line in text
