"""The example transformer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.transformers import Message
from bridge.transformers.loading import load

EXAMPLES = Path(__file__).parents[3] / "examples" / "transformers"


def test_it_converts_drops_and_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    call = load("in_euros:InEuros", {"usd": 0.5})
    made = call(Message(b'{"amount": 10, "currency": "usd"}'))
    assert made is not None
    assert json.loads(made.body or b"") == {"amount": 5.0, "currency": "eur"}
    assert made.header("converted") == b"true"
    assert call(Message(b"{}", headers=[("test", b"1")])) is None
    with pytest.raises(KeyError):
        call(Message(b'{"amount": 10, "currency": "dkk"}'))
