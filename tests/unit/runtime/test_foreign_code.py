"""Loading code of others: within a time, in a thread that nothing waits for, and once at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from bridge import ends
from bridge.errors import TransformerRefused
from bridge.node import extension
from bridge.runtime import foreign_code
from bridge.runtime.foreign_code import LOADS_MOST, NotLoaded, load_within
from bridge.settings import Settings, SettingsInvalid, load
from tests.harness.eventually import PATIENCE_S, eventually


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
    eventually(lambda: not foreign_code._under_way, "every load has returned")


def waiting(go_on: threading.Event) -> Callable[[], str]:
    def load() -> str:
        go_on.wait(PATIENCE_S)
        return "loaded"

    return load


def test_what_returns_in_time_is_given_on_and_so_is_its_error() -> None:
    assert load_within("x", lambda: "loaded", 5000) == "loaded"

    def fails() -> str:
        raise TransformerRefused("no luck")

    with pytest.raises(TransformerRefused, match="no luck"):
        load_within("x", fails, 5000)
    assert load_within("x", lambda: "loaded", 5000) == "loaded"


def test_what_does_not_return_is_named_and_not_begun_again_before_it_has(go_on: threading.Event) -> None:
    with pytest.raises(NotLoaded, match="within 10 ms, and has not"):
        load_within("x", waiting(go_on), 10)
    with pytest.raises(NotLoaded, match="one of 0 s ago has not; restart the node"):
        load_within("x", lambda: "loaded", 5000)
    assert load_within("x", lambda: "loaded", 5000, details={"url": "another"}) == "loaded"
    assert load_within("y", lambda: "loaded", 5000) == "loaded"
    go_on.set()
    eventually(lambda: not foreign_code._under_way, "it has returned")
    assert load_within("x", lambda: "loaded", 5000) == "loaded"


def test_loads_that_do_not_return_are_bounded(go_on: threading.Event) -> None:
    for number in range(LOADS_MOST):
        with pytest.raises(NotLoaded, match="has not"):
            load_within(f"x{number}", waiting(go_on), 1)
    with pytest.raises(NotLoaded, match=f"{LOADS_MOST} earlier loads have not returned") as refused:
        load_within("y", lambda: "loaded", 5000)
    assert refused.value.limit == LOADS_MOST


def test_a_slow_load_is_logged_where_there_is_a_log(
    monkeypatch: pytest.MonkeyPatch, go_on: threading.Event
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    with capture_logs() as logs, pytest.raises(NotLoaded):
        load_within("transformer shop:slow", waiting(go_on), 20)
    assert logs == [
        {
            "event": "loading-slow",
            "log_level": "warning",
            "code": "transformer shop:slow",
            "seconds": 0.02,
            "timeout-ms": 20,
        }
    ]


BRIDGE = """
[connectors.hub]
url = "ws://hub:1"
[[bridges]]
name = "to-hub"
queue-name = "orders"
static-connectors = ["hub"]
call-timeout = 50
transformer = "{}"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of a name of its own, whose import does not return before `go_on` is set."""
    name = f"waits_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        f"from {foreign_code.__name__} import GO_ON\nGO_ON.wait({PATIENCE_S})\ncalled = KIND = print\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(foreign_code, "GO_ON", request.getfixturevalue("go_on"), raising=False)
    return name


def test_a_transformer_whose_import_does_not_return_is_a_problem_of_the_settings(
    tmp_path: Path, module: str
) -> None:
    settings_file = tmp_path / "settings.toml"
    settings_file.write_text(BRIDGE.format(f"{module}:called"))
    with pytest.raises(SettingsInvalid) as invalid:
        load(settings_file, {}, transformers=True)
    assert invalid.value.lines()[0] == (
        f"{settings_file}: bridges[0].transformer (to-hub): must return from its import and its constructor"
        f' within 50 ms, and has not; found "{module}:called"'
    )


def test_the_end_of_an_installed_package_whose_import_does_not_return_is_refused(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(ends, "LOAD_TIMEOUT_MS", 20)
    monkeypatch.setattr(ends, "_installed", lambda: [("slow", f"{module}:KIND")])
    with pytest.raises(ends.EndUnusable, match="NOT_LOADED: must return from its import"):
        ends.kind("slow")


def test_an_extension_whose_import_does_not_return_is_named_and_the_node_does_not_start(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    point = EntryPoint("census", f"{module}:KIND", extension.GROUP)
    monkeypatch.setattr(extension, "LOAD_TIMEOUT_MS", 20)
    monkeypatch.setattr(extension, "entry_points", lambda group: [point])
    with pytest.raises(NotLoaded, match=rf"extension census \({module}:KIND\): must return from its import"):
        list(extension.installed(Settings.model_validate({"node": {"name": "node"}})))
