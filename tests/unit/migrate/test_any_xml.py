"""Whatever well-formed XML a file holds, it becomes settings that hold, or is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.migrate.document import NotBrokerXml
from bridge.migrate.migration import Migration, migrate
from bridge.settings.artemis import SCOPES
from tests.unit.migrate.test_samples import placeholders, problems

#: Artemis's own names, so that deep places are reached.
KNOWN = sorted(
    {name for rows in SCOPES.values() for name in rows}
    | {
        "core",
        "configuration",
        "jms",
        "connector",
        "acceptor",
        "bridge",
        "divert",
        "cluster-connection",
        "queue",
    }
    | {"address", "address-setting", "connector-ref", "class-name", "property", "topic"}
)
#: Elements in the place where Artemis has them.
BELOW = {
    "connectors": "connector",
    "acceptors": "acceptor",
    "bridges": "bridge",
    "diverts": "divert",
    "cluster-connections": "cluster-connection",
    "address-settings": "address-setting",
    "addresses": "address",
}
CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
TEXTS = st.one_of(
    st.sampled_from(
        [
            "", "a", "true", "false", "-1", "0", "10M", "PAGE", "DROP", "#", "a.*", "a::b", "${x:1}", "${y}",
            "${", "tcp://localhost:1", "tcp://h:1?sslEnabled=true;a=b", "vm://0", "udp://1", "tcp://[:1",
            "a = 1", "a =", "ANYCAST", "\x7f", "\"'\\", "]]", "a, b", "$x", "../a", "1" * 30,
        ]
    ),
    st.text(CHARACTERS, max_size=6),
)  # fmt: skip
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["name", "match", "string", "href", "key", "value", "max-consumers", "address", "x"]),
    TEXTS,
    max_size=3,
)


def element(name: str, attributes: dict[str, str], text: str, children: list[str]) -> str:
    written = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{name}{written}>{escape(text)}{''.join(children)}</{name}>"


NAMES = st.one_of(st.sampled_from(KNOWN), st.from_regex(r"[a-z]{1,5}", fullmatch=True))
ANY = st.recursive(
    st.builds(element, NAMES, ATTRIBUTES, TEXTS, st.just([])),
    lambda inner: st.builds(element, NAMES, ATTRIBUTES, TEXTS, st.lists(inner, max_size=4)),
    max_leaves=12,
)


def scope(name: str) -> st.SearchStrategy[str]:
    """An element of this name with what Artemis has in it, and with anything."""
    rows = SCOPES.get(name, {})
    inner = st.builds(
        element, st.sampled_from(sorted(rows) or ["a"]), ATTRIBUTES, TEXTS, st.lists(ANY, max_size=2)
    )
    references = st.builds(
        element,
        st.just("static-connectors"),
        st.just({}),
        st.just(""),
        st.lists(st.builds(element, st.just("connector-ref"), st.just({}), TEXTS, st.just([])), max_size=3),
    )
    return st.builds(
        element, st.just(name), ATTRIBUTES, TEXTS, st.lists(st.one_of(inner, references, ANY), max_size=5)
    )


PARTS = st.one_of(
    *(
        st.builds(element, st.just(outer), st.just({}), st.just(""), st.lists(scope(inner), max_size=3))
        for outer, inner in BELOW.items()
    ),
    scope("core"),
)
DOCUMENTS = st.one_of(
    st.builds(element, st.just("core"), ATTRIBUTES, TEXTS, st.lists(PARTS, max_size=6)),
    st.builds(element, st.just("configuration"), ATTRIBUTES, TEXTS, st.lists(ANY, max_size=4)),
    ANY,
)


def outcome(path: Path) -> Migration | str:
    """What becomes of a file: settings, or the line that refuses it. Anything else that is raised fails."""
    try:
        return migrate(path, {})
    except NotBrokerXml as refused:
        return str(refused)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(DOCUMENTS)
def test_any_document_becomes_settings_that_hold_or_is_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "broker.xml"
    path.write_text(document, "utf-8")
    migration = outcome(path)
    if isinstance(migration, str):
        assert "\n" not in migration
        return
    assert problems(migration.text, tmp_path) <= placeholders(migration.text), document
    assert all("\n" not in str(remark) for remark in migration.remarks)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", migration.text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=80), st.sampled_from([b"", b"<core>", b'<?xml version="1.0" encoding="']))
def test_any_bytes_are_answered(tmp_path: Path, content: bytes, before: bytes) -> None:
    path = tmp_path / "broker.xml"
    path.write_bytes(before + content)
    migration = outcome(path)
    assert isinstance(migration, Migration) or "\n" not in migration
