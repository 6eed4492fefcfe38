"""The suite of every target, run by the example of docs/ends.md: how an end collects it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.relay.ports import Target
from tests.contracts import test_target as contract

_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "ends.md"
#: Cases that say nothing of this end: in memory no delivery waits.
_LEFT_OUT: Final = {"test_closing_lets_deliveries_go_that_wait_and_may_be_done_twice"}
globals().update(
    {
        name: case
        for name, case in vars(contract).items()
        if name.startswith("test_") and name not in _LEFT_OUT
    }
)


def _example() -> dict[str, Any]:
    (code,) = re.findall(r"^```python\n(.*?)^```", _DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    # A dataclass looks its module up by name.
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, str(_DOCUMENT), "exec"), names)
    return names


class KeepingStore:
    """`tests.contracts.test_target.Store`."""

    def __init__(self) -> None:
        self.example = _example()
        self.store = self.example["Store"]()
        self.most = self.example["MAX_MESSAGES"]

    def target(self, bridge: str = contract.BRIDGE) -> Target:
        made: Target = self.example["KeepingTarget"](self.store, bridge)
        return made

    async def stored(self, address: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
        kept = self.store.messages.get(address, [])
        return [(message.body, duplicate_id) for message, duplicate_id in kept if message is not None]

    async def fill(self, address: str) -> None:
        self.store.messages[address] = [(None, None)] * self.most

    async def make_room(self, address: str) -> None:
        self.store.messages[address] = []

    async def cut(self, target: Target) -> None:
        """Nothing lies between them that could go."""
        await target.close()


@pytest.fixture
def store() -> KeepingStore:
    return KeepingStore()


@pytest.fixture
async def target(store: KeepingStore) -> AsyncIterator[Target]:
    made = store.target()
    yield made
    await made.close()
