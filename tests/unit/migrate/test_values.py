from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.migrate.migration import Migration, migrate
from bridge.migrate.values import fill, read
from bridge.settings.artemis import Form


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (Form.SIZE, "10M", "10MiB"),
        (Form.SIZE, "10MB", "10MiB"),
        (Form.SIZE, "10 mib", "10MiB"),
        (Form.SIZE, "2g", "2GiB"),
        (Form.SIZE, "100K", "100KiB"),
        (Form.SIZE, "1048576", "1MiB"),
        (Form.SIZE, "1000b", 1000),
        (Form.SIZE, "-1", -1),
        (Form.SIZE, "0", 0),
        (Form.TIME, "30000", 30_000),
        (Form.TIME, "-1", -1),
        (Form.COUNT, "007", 7),
        (Form.NUMBER, "1.5", 1.5),
        (Form.FLAG, "TRUE", True),
        (Form.TEXT, "a", "a"),
    ],
)
def test_a_value_is_read_as_artemis_reads_it(form: Form, text: str, value: Any) -> None:
    """K, M and G are powers of 1024, however they are written (ByteUtil)."""
    assert read(form, text) == value


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form.SIZE, "10T"),
        (Form.SIZE, "1.5M"),
        (Form.SIZE, ""),
        (Form.TIME, "5s"),
        (Form.COUNT, "1" * 5000),
        (Form.NUMBER, "NaN"),
        (Form.FLAG, "yes"),
    ],
)
def test_a_value_of_another_form_breaks_a_rule(form: Form, text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be "):
        read(form, text)


@pytest.mark.parametrize(
    ("text", "filled", "by_default", "unset"),
    [
        ("a", "a", [], []),
        ("${x}", "given", [], []),
        ("${x:other}", "given", [], []),
        ("tcp://${h:localhost}:${p: 61616 }", "tcp://localhost:61616", ["h", "p"], []),
        ("${none}b", "b", [], ["none"]),
        ("${x", "${x", [], []),
    ],
)
def test_properties_are_filled_in(text: str, filled: str, by_default: list[str], unset: list[str]) -> None:
    found = fill(text, {"x": "given"})
    assert (found.text, found.by_default, found.unset) == (filled, by_default, unset)


def migrated(tmp_path: Path, core: str, **properties: str) -> Migration:
    path = tmp_path / "broker.xml"
    path.write_text(f"<core>{core}</core>")
    return migrate(path, properties)


def test_text_that_looks_like_a_place_of_the_settings_is_none(tmp_path: Path) -> None:
    bridge = '<bridge name="b"><queue-name>q</queue-name><filter string="a = \'${HOME\'"/></bridge>'
    assert "filter = \"a = '$${HOME'\"" in migrated(tmp_path, f"<bridges>{bridge}</bridges>").text


def test_a_bridge_has_the_dead_letter_address_of_its_queues_address(tmp_path: Path) -> None:
    settings = (
        '<address-settings><address-setting match="#"><dead-letter-address>DLQ</dead-letter-address>'
        '</address-setting><address-setting match="orders.#"><dead-letter-address>orders-dead'
        "</dead-letter-address></address-setting></address-settings>"
    )
    bridges = "".join(
        f'<bridge name="{name}"><queue-name>{queue}</queue-name><static-connectors>'
        "<connector-ref>c</connector-ref></static-connectors></bridge>"
        for name, queue in (("a", "orders.eu"), ("b", "news"))
    )
    connectors = '<connectors><connector name="c">tcp://localhost:1</connector></connectors>'
    text = migrated(tmp_path, f"{settings}{connectors}<bridges>{bridges}</bridges>").text
    assert [line for line in text.splitlines() if line.startswith("dead-letter-address")] == [
        'dead-letter-address = "orders-dead"',
        'dead-letter-address = "DLQ"',
    ]


def test_values_with_which_nothing_changes_need_no_remark(tmp_path: Path) -> None:
    bridge = (
        '<connectors><connector name="c">tcp://localhost:1</connector></connectors>'
        '<addresses><address name="q"><anycast><queue name="q" max-consumers="-1" exclusive="false">'
        "<durable>true</durable></queue></anycast></address></addresses>"
        '<bridges><bridge name="b"><queue-name>q</queue-name><ha>false</ha><static-connectors>'
        "<connector-ref>c</connector-ref></static-connectors></bridge></bridges>"
    )
    assert [remark.what for remark in migrated(tmp_path, bridge).remarks] == ["connector c: url"]
