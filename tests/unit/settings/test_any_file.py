"""Whatever a file holds, it is either settings or problems that name a place in it."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.settings import SettingsInvalid, load

REFERENCE = tomllib.loads((Path(__file__).parent / "reference.toml").read_text())

TEXTS = st.one_of(
    st.sampled_from(
        ["", "hub", "journal", "${X}", "${", "2s", "1MiB", "ws://h:1", "kafka://h:1", "/a(/", "!a"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, st.booleans(), st.integers(-(10**20), 10**20), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(TEXTS, st.sampled_from(["name", "url", "kafka", "eu"])), inner, max_size=3),
    ),
    max_leaves=5,
)


def as_toml(value: Any) -> str:
    """A value written inline."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _quoted(value)
        case dict():
            return "{" + ", ".join(f"{_quoted(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(as_toml, value)) + "]"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(letter):08x}" for letter in text) + '"'


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the tree, the root left out."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, item in items for place in ((*path, key), *places(item, (*path, key)))]


PLACES = places(REFERENCE)


def refusal(path: Path, **environ: str) -> SettingsInvalid | None:
    """What is wrong with the file; None where nothing is. Anything else that is raised fails the test."""
    try:
        load(path, environ)
    except SettingsInvalid as invalid:
        return invalid
    return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4), st.data())
def test_a_file_with_anything_anywhere_is_answered(
    tmp_path: Path, changes: list[tuple[tuple[Any, ...], Any]], data: st.DataObject
) -> None:
    tree = copy.deepcopy(REFERENCE)
    for place, value in changes:
        *steps, last = place
        parent: Any = tree
        for step in steps:  # None where an earlier change took the place away
            known = isinstance(parent, dict) and step in parent
            known = known or (isinstance(parent, list) and isinstance(step, int) and step < len(parent))
            parent = parent[step] if known else None
        if isinstance(parent, dict) and isinstance(last, str):
            parent[last] = value
        elif isinstance(parent, list) and isinstance(last, int):
            parent[last : last + 1] = [value]
    for text in data.draw(st.lists(TEXTS, max_size=1)):
        tree[text] = 1
    path = tmp_path / "settings.toml"
    path.write_text("".join(f"{_quoted(key)} = {as_toml(value)}\n" for key, value in tree.items()))
    refused = refusal(path, HUB_TOKEN="t", HOSTNAME="h")
    if refused is not None:
        keys = [problem.key for problem in refused.problems]
        assert keys
        assert all(keys)
        assert len(set(keys)) == len(keys), "one problem a place"
        assert all("\n" not in line for line in refused.lines())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.text(max_size=60), st.lists(st.sampled_from(list("[]\"#=a.*\\'\n {}1")), max_size=20).map("".join)
    )
)
def test_a_file_of_any_text_is_answered(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    refused = refusal(path)
    if refused is not None:
        assert refused.problems
        assert all("\n" not in line for line in refused.lines())
