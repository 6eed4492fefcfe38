"""The registry of ends: what it finds, what it loads, and what it says of an end that is of no use."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge import ends
from bridge.end_kind import EndKind
from bridge.ends import EndUnusable
from bridge.settings import SettingsInvalid, load
from tests.harness.lossy import install, installed


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages."""
    directory = tmp_path / "packages"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    yield directory
    for scheme in ("odd", "lossy-kafka"):
        ends.forget(scheme)


def package(site: Path, name: str, value: str, scheme: str = "odd") -> None:
    install(site, name, {scheme: value})


def problem(tmp_path: Path, url: str) -> str:
    file = tmp_path / "settings.toml"
    file.write_text(f'[connectors.there]\nurl = "{url}"\n')
    with pytest.raises(SettingsInvalid) as raised:
        load(file, {})
    (line,) = raised.value.problems
    return str(line).removeprefix(f"{file}: ")


def test_every_end_of_its_own_is_there_and_is_a_kind() -> None:
    for scheme in ("journal", "ws", "wss", "kafka"):
        assert isinstance(ends.kind(scheme), EndKind)
    assert ends.kind("ws") is ends.kind("wss")


def test_the_rule_of_all_urls_names_the_form_of_each() -> None:
    form = r"[a-z]+://\S*[^\s,]"
    rule = re.fullmatch(rf"must be (({form}, )+{form}) or {form}", ends.url_rule())
    assert rule is not None
    for own in ("ws://host:port, wss://host:port", "kafka://host:port,host:port"):
        assert own in rule[0]


def test_no_url_leads_to_the_journal(tmp_path: Path) -> None:
    assert problem(tmp_path, "journal://x") == f'connectors.there.url: {ends.url_rule()}; found "journal://x"'


def test_a_scheme_is_registered_once() -> None:
    with pytest.raises(EndUnusable, match="there is an end for kafka:// already"):
        ends.register("kafka", "tests.fakes.memory_end:KIND")


def test_an_installed_package_adds_an_end_by_its_entry_point(site: Path, tmp_path: Path) -> None:
    package(site, "one", "tests.fakes.memory_end:KIND", scheme="odd")
    assert ends.url_rule().endswith(" or odd://...")
    file = tmp_path / "settings.toml"
    file.write_text('[connectors.there]\nurl = "odd://name"\n')
    # Which URLs it takes is its own matter; of this scheme there are none.
    with pytest.raises(SettingsInvalid, match="must be memory://name"):
        load(file, {})


def test_a_package_cannot_take_the_place_of_an_end_of_the_product(site: Path) -> None:
    before = ends.url_rule()
    package(site, "one", "tests.fakes.memory_end:KIND", scheme="kafka")
    assert type(ends.kind("kafka")).__module__ == "bridge.kafka.end"
    assert ends.url_rule() == before


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_package.end:END", "ModuleNotFoundError: No module named 'no_such_package'"),
        (
            "tests.fakes.memory_end:END",
            "AttributeError: module 'tests.fakes.memory_end' has no attribute 'END'",
        ),
    ],
)
def test_an_end_that_cannot_be_loaded_is_a_problem_of_the_url(
    site: Path, tmp_path: Path, value: str, why: str
) -> None:
    package(site, "one", value)
    told = problem(tmp_path, "odd://x")
    assert told == (
        f'connectors.there.url: the end for odd:// cannot be loaded from {value}: {why}; found "odd://x"'
    )


def test_a_module_that_fails_when_it_is_loaded_is_a_problem_of_the_url(site: Path, tmp_path: Path) -> None:
    (site / "failing_end.py").write_text('raise ValueError("not here")')
    package(site, "one", "failing_end:KIND")
    assert "cannot be loaded from failing_end:KIND: ValueError: not here" in problem(tmp_path, "odd://x")


def test_what_is_no_kind_of_end_is_a_problem_of_the_url(site: Path, tmp_path: Path) -> None:
    package(site, "one", "tests.fakes.memory_end:STORES")
    assert problem(tmp_path, "odd://x") == (
        'connectors.there.url: the end for odd:// is no EndKind, but a dict; found "odd://x"'
    )


def test_two_packages_with_one_scheme_are_both_named(site: Path, tmp_path: Path) -> None:
    package(site, "one", "tests.fakes.memory_end:KIND")
    package(site, "two", "tests.fakes.ends:KIND")
    assert problem(tmp_path, "odd://x") == (
        "connectors.there.url: must be the scheme of one end; installed packages have 2 for odd://:"
        ' tests.fakes.ends:KIND, tests.fakes.memory_end:KIND; found "odd://x"'
    )


@pytest.mark.processes
def test_a_wrapping_end_is_held_to_the_rules_of_the_end_behind_it(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from bridge.settings import SettingsInvalid, load
file = Path({str(tmp_path / "settings.toml")!r})
file.write_text('''
[connectors.a]
url = "lossy-kafka://a:1"
token = "s3cret"
[connectors.b]
url = "lossy-kafka://b"
[[bridges]]
name = "x"
source-connector = "a"
queue-name = "orders"
static-connectors = ["a"]
''')
try:
    load(file, {{}})
except SettingsInvalid as invalid:
    print(*(f"{{problem.key}}: {{problem.rule}}" for problem in invalid.problems), sep="\\n")
print("aiokafka" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=installed(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    same = "must name another topic, because source and target are the same Kafka cluster"
    assert ran.stdout.splitlines() == [
        "connectors.a.token: needs a ws:// or wss:// URL",
        "connectors.b.url: must be kafka://host:port,host:port",
        f"bridges[0].forwarding-address (x): {same}",
        "False",
    ]


@pytest.mark.processes
def test_a_node_without_kafka_loads_no_part_of_it(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from bridge.assembly.credentials import Credentials
from bridge.node.wiring import made_node
from bridge.settings import SettingsFile, load
file = Path({str(tmp_path / "settings.toml")!r})
file.write_text('''
[node]
name = "edge"
data-directory = "data"
[connectors.hub]
url = "ws://127.0.0.1:1"
[[bridges]]
name = "to-hub"
queue-name = "orders"
static-connectors = ["hub"]
''')
settings = load(file, {{}})
node = made_node(settings, SettingsFile(file, {{}}), Credentials(settings))
async def live():
    await node.start()
    await node.stop()
asyncio.run(live())
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"aiokafka", "pyspark"}}))
print(sorted(name for name in sys.modules if name.startswith("bridge.kafka")))
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-2:] == ["[]", "[]"]
