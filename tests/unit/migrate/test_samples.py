"""Whole files: `samples/NAME.xml`, the settings that they become (`.toml`), and what stderr says (`.txt`).

``python -m tests.unit.migrate.test_samples`` writes them anew, to be read as a diff.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.migrate.draft import Kind
from bridge.migrate.migration import Migration, migrate
from bridge.settings import SettingsInvalid, load

SAMPLES = Path(__file__).parent / "samples"
NAMES = sorted(path.stem for path in SAMPLES.glob("*.toml"))
SECRET = "t0p-s3cret"


def migrated(name: str) -> Migration:
    """The outcome for a sample, with places as they are beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(SAMPLES)
        return migrate(Path(f"{name}.xml"), {})


def remarks(migration: Migration) -> str:
    return "".join(f"{remark}\n" for remark in migration.remarks)


def placeholders(text: str) -> set[str]:
    """The keys that are to be filled in."""
    return set(re.findall(r"^([a-z-]+) = .*# fill in$", text, re.MULTILINE))


def problems(text: str, directory: Path) -> set[str]:
    """The keys that `validate` names, with every variable set."""
    path = directory / "settings.toml"
    path.write_text(text, "utf-8")
    try:
        load(path, {name: name for name in re.findall(r"\$\{([A-Z0-9_]+)\}", text)})
    except SettingsInvalid as invalid:
        return {re.sub(r"^.*\.|\[\d+\]| \(.*\)$", "", problem.key) for problem in invalid.problems}
    return set()


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_becomes_these_settings_and_these_remarks(name: str) -> None:
    migration = migrated(name)
    assert migration.text == (SAMPLES / f"{name}.toml").read_text("utf-8")
    assert remarks(migration) == (SAMPLES / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_validate_names_nothing_but_placeholders(name: str, tmp_path: Path) -> None:
    text = migrated(name).text
    assert problems(text, tmp_path) <= placeholders(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_remark_that_a_person_needs_is_a_comment_too(name: str) -> None:
    migration = migrated(name)
    comments = " ".join(re.findall(r"^#(.*)$", migration.text, re.MULTILINE))
    plain = re.sub(r"\s+", " ", comments)
    needed = [remark for remark in migration.remarks if remark.kind is not Kind.IDLE]
    assert [remark for remark in needed if f"{remark.what}: {remark.text}" not in plain] == []
    assert SECRET not in migration.text + remarks(migration)


def test_the_samples_hold_secrets_and_a_complete_one() -> None:
    assert sum(SECRET in path.read_text("utf-8") for path in SAMPLES.glob("*.xml")) >= 2
    assert [name for name in NAMES if migrated(name).is_complete] == ["complete"]


def test_the_command_says_all_that_and_with_strict_its_exit_code_tells_complete_from_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(SAMPLES)
    assert main(["migrate", "bridges.xml", "--strict"]) == 3
    told = capsys.readouterr()
    assert told.out == (SAMPLES / "bridges.toml").read_text("utf-8")
    *lines, number = told.err.splitlines(keepends=True)
    assert "".join(lines) == (SAMPLES / "bridges.txt").read_text("utf-8")
    assert re.fullmatch(r"\d+ left, \d+ to check, \d+ without a meaning here\n", number)
    written = str(tmp_path / "complete.toml")
    assert main(["migrate", "complete.xml", "--strict", "--output", written]) == 0
    assert main(["validate", "--settings", written]) == 0


if __name__ == "__main__":
    for sample in sorted(SAMPLES.glob("*.xml")):
        if sample.stem != "addresses-more":
            outcome = migrated(sample.stem)
            sample.with_suffix(".toml").write_text(outcome.text, "utf-8")
            sample.with_suffix(".txt").write_text(remarks(outcome), "utf-8")
