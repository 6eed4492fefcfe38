"""A directory of its own for each test's settings file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``settings.toml`` in the current directory, which is the test's own; not written yet."""
    monkeypatch.chdir(tmp_path)
    return Path("settings.toml")
