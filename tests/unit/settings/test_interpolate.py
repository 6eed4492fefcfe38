from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.settings.interpolate import MAX_FILE_BYTES, interpolate

NOWHERE = Path("nowhere")
PLAIN_TEXT = st.text().filter(lambda text: "${" not in text)


def filled(text: str, directory: Path = NOWHERE, **environ: str) -> Any:
    done = interpolate({"key": text}, environ, directory)
    assert not done.broken
    return done.tree["key"]


def refused(text: str, directory: Path = NOWHERE, **environ: str) -> str:
    ((path, rule),) = interpolate({"key": text}, environ, directory).broken
    assert path == ("key",)
    return rule


@given(PLAIN_TEXT)
def test_text_without_places_stays_as_it_is(text: str) -> None:
    assert filled(text) == text


@given(PLAIN_TEXT, st.text(), PLAIN_TEXT.filter(lambda text: not text.startswith("{")))
def test_a_variable_is_put_in_as_it_is(before: str, value: str, after: str) -> None:
    """Once: what the variable brings is not looked through again."""
    before = before.rstrip("$")
    assert filled(before + "${VALUE}" + after, VALUE=value) == before + value + after


@given(st.text())
def test_any_text_can_be_written_with_escapes(text: str) -> None:
    # A '$' just before a place would be read with it; TOML has no shorter way to write that.
    text = text.replace("$$", "")
    assert filled(text.replace("${", "$${")) == text


@given(
    st.recursive(
        st.one_of(st.integers(), st.booleans(), PLAIN_TEXT), lambda inner: st.lists(inner, max_size=4)
    )
)
def test_numbers_and_the_shape_of_the_settings_stay(value: Any) -> None:
    tree = {"table": {"key": value}}
    assert interpolate(tree, {}, NOWHERE).tree == tree


@pytest.mark.parametrize("text", ["${A:-${B:-x}}", "${A:-${B}}", "a${A:-${file:x}}b", "${A:-$${B}"])
def test_a_place_inside_a_default_is_refused_by_name(text: str) -> None:
    # The first '}' ends a place: 'x}' would be made of it, and nobody told.
    rule = "the default of environment variable A must be plain text, without '${'"
    assert refused(text) == refused(text, A="a", B="b") == rule


def test_a_default_holds_where_the_variable_is_unset_or_empty() -> None:
    assert filled("${A:-text}") == "text"
    assert filled("${A:-text}", A="") == "text"
    assert filled("${A:-text}", A="value") == "value"
    assert filled("${A:-}") == ""
    assert filled("${A:-a:-b $x}") == "a:-b $x"


def test_an_empty_variable_is_set() -> None:
    assert filled("<${A}>", A="") == "<>"


def test_several_places_in_lists_and_tables() -> None:
    tree = {"a": ["${X}-${Y}", {"b": "$${X}"}], "c": 5}
    done = interpolate(tree, {"X": "1", "Y": "${X}"}, NOWHERE)
    assert done.tree == {"a": ["1-${X}", {"b": "${X}"}], "c": 5}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("${A}", "environment variable A must be set; ${A:-text} gives a default"),
        ("${A", "'${' must be closed by '}'; '$${' stands for '${' itself"),
        ("${}", "must be ${VARIABLE}, ${VARIABLE:-text} or ${file:path}; '$${' stands for '${' itself"),
        ("${1A}", "must be ${VARIABLE}, ${VARIABLE:-text} or ${file:path}; '$${' stands for '${' itself"),
        ("${A-B}", "must be ${VARIABLE}, ${VARIABLE:-text} or ${file:path}; '$${' stands for '${' itself"),
        ("${file:none}", "file none must be readable (No such file or directory)"),
        ("${file:.}", "file . must be readable (Is a directory)"),
    ],
)
def test_places_that_cannot_be_filled(text: str, rule: str, tmp_path: Path) -> None:
    assert refused(text, tmp_path) == rule


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"t", "t"), (b"t\n", "t"), (b"t\n\n", "t\n"), (b"t\r\n", "t"), (b"\n", ""), (b"${A}", "${A}")],
)
def test_a_file_loses_one_trailing_newline_and_nothing_else(
    content: bytes, text: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_bytes(content)
    done = interpolate({"key": ["${file:token}"]}, {}, tmp_path)
    assert (done.tree, done.from_files) == ({"key": [text]}, {("key", 0)})


def test_an_absolute_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    assert filled(f"${{file:{tmp_path}/token}}") == "t"


def test_a_variable_that_is_no_text(tmp_path: Path) -> None:
    for place in ("${BYTES}", "${BYTES:-t}"):
        done = interpolate({"key": place}, {"BYTES": "\udcff"}, tmp_path)
        assert done.broken == [(("key",), "environment variable BYTES must be UTF-8 text")]


def test_files_that_are_too_large_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff")
    assert refused("${file:large}", tmp_path) == f"file large must hold at most {MAX_FILE_BYTES} bytes"
    assert refused("${file:binary}", tmp_path) == "file binary must be UTF-8 text"
