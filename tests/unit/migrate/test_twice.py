"""What a broker.xml says twice: what counts in Artemis 2.44.0 counts here, and the rest is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridge.migrate.migration import migrate

QUEUE_TWICE = "Artemis has a queue name once, at the first address that declares it: x"


def settings(directory: Path, core: str) -> tuple[dict[str, Any], list[str]]:
    """Settings and report."""
    path = directory / "broker.xml"
    path.write_text(f"<core>{core}</core>")
    migration = migrate(path, {})
    return tomllib.loads(migration.text), [f"{remark.what}: {remark.text}" for remark in migration.remarks]


def address(name: str, *queues: str, kind: str = "multicast") -> str:
    return f'<address name="{name}"><{kind}>{"".join(queues)}</{kind}></address>'


def queue(name: str, inside: str = "") -> str:
    return f'<queue name="{name}">{inside}</queue>'


@pytest.mark.parametrize("order", [1, -1])
def test_an_address_as_multicast_and_as_anycast_keeps_the_queues_of_both(order: int, tmp_path: Path) -> None:
    both = [address("x", queue("q")), address("x", queue("x"), kind="anycast")][::order]
    found, told = settings(tmp_path, f"<addresses>{''.join(both)}</addresses>")
    assert found["addresses"]["x"]["routing-type"] == "MULTICAST"
    assert sorted(found["addresses"]["x"]["queues"]) == ["q", "x"]
    assert "address x: written twice: as in Artemis, the address has the queues of both" in told


def test_an_address_of_jms_and_of_core_keeps_the_queues_of_both(tmp_path: Path) -> None:
    path = tmp_path / "broker.xml"
    path.write_text(
        f"<configuration><core><addresses>{address('x', queue('q'))}</addresses></core>"
        '<jms><queue name="x"/></jms></configuration>'
    )
    assert tomllib.loads(migrate(path, {}).text)["addresses"]["x"]["queues"] == ["q", "x"]


def test_the_second_address_setting_of_a_pattern_is_ignored(tmp_path: Path) -> None:
    one, other = (
        f'<address-setting match="m"><{key}>7</{key}></address-setting>'
        for key in ("id-cache-size", "redistribution-delay")
    )
    found, told = settings(tmp_path, f"<address-settings>{one}{other}</address-settings>")
    assert found["address-settings"]["m"] == {"id-cache-size": 7}
    assert told == [
        'address-setting "m": written twice: Artemis takes the first one, and ignores this one',
    ]


def test_the_size_of_an_address_setting_that_is_ignored_does_not_count(tmp_path: Path) -> None:
    settings_of = "".join(
        f'<address-setting match="{match}"><max-size-bytes>{size}</max-size-bytes>'
        "<address-full-policy>FAIL</address-full-policy></address-setting>"
        for match, size in (("#", "1M"), ("#", "2M"))
    )
    policy = '<address-setting match="a"><address-full-policy>BLOCK</address-full-policy></address-setting>'
    found, _ = settings(tmp_path, f"<address-settings>{settings_of}{policy}</address-settings>")
    assert found["address-settings"]["a"]["max-size-bytes"] == "1MiB"


def test_a_queue_name_at_two_addresses_is_read_at_the_first(tmp_path: Path) -> None:
    bridge = (
        '<connectors><connector name="c">tcp://localhost:1</connector></connectors><bridges><bridge name="b">'
        "<queue-name>q</queue-name><static-connectors><connector-ref>c</connector-ref></static-connectors>"
        "</bridge></bridges>"
    )
    addresses = address("x", queue("q")) + address("y", queue("q"), queue("r"))
    found, told = settings(tmp_path, f"<addresses>{addresses}</addresses>{bridge}")
    assert found["bridges"][0]["queue-name"] == "x::q"
    assert found["addresses"]["y"]["queues"] == ["r"]
    assert f"address y: queue q: {QUEUE_TWICE}" in told


def test_the_first_connector_of_a_name_counts(tmp_path: Path) -> None:
    connectors = "".join(f'<connector name="c">tcp://localhost:{port}</connector>' for port in (1, 2))
    found, told = settings(tmp_path, f"<connectors>{connectors}</connectors>")
    assert found["connectors"]["c"]["url"] == "ws://localhost:1"
    assert "connector c: written twice: the first one counts" in told


def test_a_property_of_a_transformer_that_is_written_again_is_named_with_its_first_value(
    tmp_path: Path,
) -> None:
    properties = "".join(f'<property key="mark" value="{value}"/>' for value in ("one", "two"))
    transformer = f"<transformer><class-name>Stamp</class-name>{properties}</transformer>"
    path = tmp_path / "broker.xml"
    path.write_text(f'<core><bridges><bridge name="b">{transformer}</bridge></bridges></core>')
    migration = migrate(path, {})
    assert 'transformer-properties = { mark = "two" }' in migration.text
    told = "bridge b: transformer: property mark: written twice: the last one counts; found one"
    assert told in "".join(map(str, migration.remarks))


ATTRIBUTES = '<address name="x"><multicast y="2"><queue name="q"/>text</multicast></address>'


@pytest.mark.parametrize(
    ("core", "line"),
    [
        ("<name>a</name><name>b</name>", "name: written twice: the first one counts"),
        (
            address("x", queue("q", '<filter string="a = 1"/><filter string="b = 1"/>')),
            "address x: multicast: queue q: filter: written twice: the first one counts",
        ),
        (ATTRIBUTES, "address x: multicast: not known: Artemis's schema has no text here"),
        (ATTRIBUTES, "address x: multicast: y: not known: Artemis's schema has no such attribute here"),
        (
            address("x", queue("q", "<filter/>")),
            "address x: filter: without a condition it takes every message, as if it were not there",
        ),
    ],
)
def test_what_no_key_is_made_of_is_named(core: str, line: str, tmp_path: Path) -> None:
    inside = core if core.startswith("<name>") else f"<addresses>{core}</addresses>"
    assert line in settings(tmp_path, inside)[1]
