"""The rule that a skip fails in CI, tried on small test files of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SKIPS = {
    "a_mark": "import pytest\n@pytest.mark.skip(reason='no broker')\ndef test_it() -> None: ...\n",
    "a_call": "import pytest\ndef test_it() -> None:\n    pytest.skip('no broker')\n",
    "a_module": "import pytest\npytest.skip('no broker', allow_module_level=True)\n",
    "an_import": "import pytest\npytest.importorskip('a_module_that_is_nowhere')\n",
}


EXPECTED_FAILURE = "import pytest\n@pytest.mark.xfail\ndef test_it() -> None:\n    assert False\n"


def run_pytest(directory: Path, sources: Mapping[str, str], ci: str) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    for name, source in sources.items():
        (directory / f"test_{name}.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    options = ("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "--import-mode=importlib")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--continue-on-collection-errors", "-ra", "."],
        cwd=directory,
        env=environment | {"CI": ci, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_skip_of_each_kind_fails_the_run_in_ci_and_says_why_and_an_expected_failure_is_none(
    tmp_path: Path,
) -> None:
    result = run_pytest(tmp_path, SKIPS | {"expected": EXPECTED_FAILURE}, ci="true")
    assert result.returncode not in {0, pytest.ExitCode.NO_TESTS_COLLECTED}, result.stdout
    for kind in SKIPS:
        (told,) = re.findall(rf"^(?:FAILED|ERROR) test_{kind}\.py.* - (.*)", result.stdout, re.MULTILINE)
        assert "skipped, which is a failure in CI" in told
        assert ("no broker" in told) == (kind != "an_import")
    assert "1 failed, 1 xfailed, 3 errors" in result.stdout


def test_a_skip_of_each_kind_stays_a_skip_elsewhere(tmp_path: Path) -> None:
    skipped = run_pytest(tmp_path, SKIPS, ci="")
    assert (skipped.returncode, "4 skipped" in skipped.stdout) == (0, True), skipped.stdout
