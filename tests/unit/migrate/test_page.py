from __future__ import annotations

from pathlib import Path

from bridge.migrate.describe import HEADING, markdown
from bridge.settings.artemis import SCOPES
from bridge.settings.schema import known_keys

PAGE = Path(__file__).parents[3] / "docs" / "migration.md"
#: The table of the settings for an element; others have none of their own.
TABLES = {
    "core": (),
    "acceptor": ("acceptor",),
    "connector": ("connectors", "a"),
    "address-setting": ("address-settings", "a"),
    "bridge": ("bridges", 0),
    "cluster-connection": ("cluster-connections", 0),
    "divert": ("bridges", 0),
}


def test_the_page_has_every_element_as_the_table_has_it() -> None:
    text = PAGE.read_text("utf-8")
    assert text[text.index(HEADING) :] == markdown(), "python -m bridge.migrate.describe"


def test_every_key_that_an_element_becomes_is_one_of_the_settings_or_has_an_answer_until_it_is() -> None:
    compared = 0
    for scope, path in TABLES.items():
        for row in SCOPES[scope].values():
            *table, key = row.becomes.split(".")
            if key and not row.answer:
                assert key in known_keys((*table, *path)), f"{scope}: {row.name}"
                compared += 1
    assert compared > 60


def test_answers_read_as_clauses() -> None:
    for rows in SCOPES.values():
        for row in rows.values():
            for answer in (row.answer, *row.values.values()):
                assert answer[-1:] not in (".", ";"), row.name
                assert "\n" not in answer
