"""The journal's tests do not wait half a second where it tries again: after a full disk, or a lost file."""

from __future__ import annotations

import pytest

from bridge.journal.sqlite import vacuum
from bridge.journal.writer import blocked_commands, disk_full, writer


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocked_commands, disk_full, vacuum, writer):
        monkeypatch.setattr(module, "RETRY_MS", 20)
