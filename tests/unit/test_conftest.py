"""The rule that a skip fails in CI, tried on small test files of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SKIPS = {
    "a_mark": "import pytest\n@pytest.mark.skip(reason='no broker')\ndef test_it() -> None: ...\n",
    "a_call": "import pytest\ndef test_it() -> None:\n    pytest.skip('no broker')\n",
    "a_module": "import pytest\npytest.skip('no broker', allow_module_level=True)\n",
    "an_import": "import pytest\npytest.importorskip('a_module_that_is_nowhere')\n",
}


def run_pytest(directory: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    (directory / "test_sample.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "."],
        cwd=directory,
        env=environment | {"CI": ci, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("kind", SKIPS)
def test_a_skip_fails_the_run_in_ci_and_says_why(kind: str, tmp_path: Path) -> None:
    result = run_pytest(tmp_path, SKIPS[kind], ci="true")
    assert result.returncode not in {0, pytest.ExitCode.NO_TESTS_COLLECTED}, result.stdout
    assert "skipped, which is a failure in CI" in result.stdout
    assert ("no broker" in result.stdout) == (kind != "an_import")


def test_a_skip_stays_a_skip_elsewhere_and_an_expected_failure_is_none(tmp_path: Path) -> None:
    skipped = run_pytest(tmp_path, SKIPS["a_mark"], ci="")
    assert (skipped.returncode, "1 skipped" in skipped.stdout) == (0, True)
    expected = "import pytest\n@pytest.mark.xfail\ndef test_it() -> None:\n    assert False\n"
    result = run_pytest(tmp_path, expected, ci="true")
    assert (result.returncode, "1 xfailed" in result.stdout) == (0, True)
