"""Journals do not wait half a second where they try again: room at an address or on the disk, a lost file."""

from __future__ import annotations

import pytest

from bridge.journal.sqlite import vacuum
from bridge.journal.writer import blocked_commands, disk_full, writer


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocked_commands, disk_full, vacuum, writer):
        monkeypatch.setattr(module, "RETRY_MS", 20)
