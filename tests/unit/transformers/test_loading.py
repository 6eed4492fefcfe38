"""Transformers that are found, and those that are refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bridge.errors import TransformerRefused, described
from bridge.transformers import Message
from bridge.transformers.loading import check_path, load, told
from tests.harness import transformers

HERE = "tests.harness.transformers"


def test_a_function_gets_the_properties_with_each_message() -> None:
    """B7"""
    made = load(f"{HERE}:change_all", {"colour": "red"})(Message(b"body", headers=[("old", b"1")]))
    assert made is not None
    assert (made.body, made.key, made.headers) == (
        b"new body", b"key", [("colour", b"red"), ("seen-id", None)],
    )  # fmt: skip


def test_a_class_is_made_with_the_properties() -> None:
    call = load(f"{HERE}:ByBody", {})
    assert call(Message(b"drop")) is None
    made = call(Message(b"body"))
    assert made is not None
    assert made.body == b"made body"


REFUSED = {
    "nowhere.at.all:seen": "cannot be imported here: ModuleNotFoundError: No module named 'nowhere'",
    f"{HERE}:nothing": f"must name a callable; {HERE} has no nothing",
    f"{HERE}:not_callable": "must be callable; it is of type int",
    f"{HERE}:coroutine": "must not be a coroutine function: a thread calls it",
    f"{HERE}:takes_one": "must take a message and the properties: too many positional arguments",
    "subprocess:Popen": "must be a class whose objects are callable; Popen has no __call__",
    f"{HERE}:TakesNothing": "must take the properties: too many positional arguments",
    f"{HERE}:TakesNoMessage": "must take a message: too many positional arguments",
    f"{HERE}:TakesLater": "must not be a coroutine function: a thread calls it",
    f"{HERE}:NeverMade": "cannot be made with its properties: ValueError: no luck",
}


@pytest.mark.parametrize("path", REFUSED)
def test_one_that_is_not_there_or_cannot_be_called_is_refused(path: str) -> None:
    with pytest.raises(TransformerRefused) as refused:
        load(path, {"what": "luck"})
    assert refused.value.detail == REFUSED[path]


def test_a_class_that_cannot_be_called_is_never_made(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(TransformerRefused, match="Popen has no __call__"):
        load("subprocess:Popen", {"args": f"touch {ran}", "shell": True})
    for name in ("TakesNothing", "TakesNoMessage", "TakesLater"):
        with pytest.raises(TransformerRefused):
            load(f"{HERE}:{name}", {})
    assert not ran.exists()
    assert transformers.MADE == []


def test_a_module_that_ends_the_process_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ending_transformer.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TransformerRefused, match="cannot be imported here: SystemExit: 3"):
        load("ending_transformer:seen", {})
    assert "ending_transformer" not in sys.modules


@pytest.mark.parametrize(
    "path", ["shop", "shop:", ":seen", "shop:seen()", "shop-1:seen", "shop:1", "a b:c", "."]
)
def test_a_path_of_another_form_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"dotted\.path:callable"):
        check_path(path)


def test_an_error_is_told_in_one_short_line() -> None:
    assert told(ValueError("a\n b")) == "ValueError: a b"
    assert told(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(told(ValueError("x" * 10_000))) < 600


class Untellable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("not even that")

    __repr__ = __str__


def test_an_error_whose_text_cannot_be_made_is_told_by_its_class() -> None:
    assert told(Untellable()) == "Untellable: its text cannot be shown (ValueError)"
    assert described(Untellable()) == "Untellable: its text cannot be shown (ValueError)"
