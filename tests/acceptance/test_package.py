"""The wheel as a stranger has it: built, installed into a fresh environment, and its demo run there.

No network: the packages that a node runs on are those of the environment that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What the build reads.
SOURCES = (
    "bridge", "cluster", "dedup", "examples", "pyproject.toml", "settings.toml", "README.md", "LICENSE",
)  # fmt: skip
DATA = ROOT / "examples" / "departures-2013.jsonl"
PATIENCE_S = 300.0


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, away from the checkout: what it imports is what is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"TMPDIR": str(cwd), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel. The build writes beside what it reads, so it reads a copy."""
    copy = tmp_path_factory.mktemp("checkout")
    made = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=made)
        else:
            shutil.copy(source, copy / name)
    # As `pip wheel .` does it, without fetching the build backend: the tests' environment has it.
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", copy / "wheels")
    ended = run(sys.executable, "-m", "pip", "wheel", *options, copy, cwd=copy)
    assert ended.returncode == 0, ended.stderr
    (built,) = (copy / "wheels").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs' directory of a fresh environment that has the wheel."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    ended = run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    assert ended.returncode == 0, ended.stderr
    python = home / "bin" / "python"
    options = ("--no-deps", "--no-index", "--no-compile")
    ended = run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=home.parent)
    assert ended.returncode == 0, ended.stderr
    ended = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home.parent)
    # Other packages come from here. A directory that is added so brings no .pth files of its own with it, so
    # the checkout, which this environment may have as an editable install, stays out.
    (Path(ended.stdout.strip()) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield home / "bin"
    shutil.rmtree(home)


def test_the_installed_command_is_the_wheels_and_not_the_checkouts(installed: Path, tmp_path: Path) -> None:
    ended = run(installed / "python", "-c", "import bridge; print(bridge.__file__)", cwd=tmp_path)
    assert Path(ended.stdout).is_relative_to(installed.parent), ended.stderr


def test_the_demo_of_an_installed_wheel_relays_the_departures(installed: Path, tmp_path: Path) -> None:
    ended = run(installed / "core-bridge", "demo", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("sent 20000 repeated 2000 duplicates 2000 arrived 20000 lost 0 doubled 0 ")
    assert list(tmp_path.iterdir()) == []


def test_an_installed_wheel_writes_settings_that_hold(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "core-bridge", "init", cwd=tmp_path).returncode == 0
    assert (tmp_path / "settings.toml").read_bytes() == (ROOT / "settings.toml").read_bytes()
    ended = run(installed / "core-bridge", "validate", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "settings.toml: ok\n", "")


def test_the_wheel_has_the_data_readme_and_licence_with_it(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (information,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(information).decode())
        (licence,) = [name for name in names if name.endswith("/licenses/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        templates = {path.name for path in (ROOT / "dedup" / "reconcile" / "templates").iterdir()}
        assert templates
        assert {f"dedup/reconcile/templates/{name}" for name in templates} <= set(names)
        assert archive.read("bridge/demo/departures-2013.jsonl") == DATA.read_bytes()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text("utf-8")
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["Summary"] == project["description"]
    versions = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)]
    assert set(versions) <= set(metadata.get_all("Classifier") or ())
    packages = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {"bridge", "cluster", "dedup"}
