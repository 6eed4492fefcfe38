"""Fixtures of the tests of lines, and their table at the end of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.certificates import make_certificates

#: Name of the property of a test's report that is a line of the table.
PROPERTY = "line"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    assert list(make_certificates(directory, "node"))
    return directory


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what each row came to, those that failed included."""
    reports = [report for status in ("passed", "failed") for report in terminalreporter.stats.get(status, ())]
    lines = [text for report in reports for name, text in report.user_properties if name == PROPERTY]
    if lines:
        terminalreporter.section("lines")
        for text in lines:
            terminalreporter.write_line(text)
