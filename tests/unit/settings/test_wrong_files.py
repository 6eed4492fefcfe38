"""Files that do not hold, each with the exact lines it is answered with: `wrong/*.txt`.

A case is ``=== SCENARIO``, the file, and ``=> LINE`` for each problem, without the file's name in front.
``{url-rule}`` in a line is the rule of all URLs, which names every registered kind of end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bridge import ends
from bridge.settings import SettingsInvalid, load

DIRECTORY = Path(__file__).parent / "wrong"


class WrongFile(NamedTuple):
    scenario: str
    text: str
    lines: list[str]


def wrong_files() -> Iterator[WrongFile]:
    url_rule = ends.url_rule()
    for path in sorted(DIRECTORY.glob("*.txt")):
        for case in path.read_text().removeprefix("=== ").split("\n=== "):
            scenario, *rest = case.splitlines()
            told = [line.removeprefix("=> ") for line in rest if line.startswith("=> ")]
            lines = [line.replace("{url-rule}", url_rule) for line in told]
            text = [line for line in rest if not line.startswith("=> ")]
            yield WrongFile(f"{path.stem}: {scenario}", "\n".join(text).rstrip() + "\n", lines)


WRONG_FILES = list(wrong_files())


def problems_of(path: Path, text: str, **environ: str) -> list[str]:
    """Every line that a file with this text is answered with."""
    path.write_text(text)
    with pytest.raises(SettingsInvalid) as refused:
        load(path, environ)
    return refused.value.lines()


@pytest.mark.parametrize("file", WRONG_FILES, ids=lambda file: file.scenario)
def test_wrong_file_is_answered_with_the_exact_lines(file: WrongFile, settings_file: Path) -> None:
    """The contract's form, `FILE: KEY.PATH: RULE; found VALUE[; did you mean NAME?]` (D9 among them)."""
    *lines, number = problems_of(settings_file, file.text, REQUESTS="5")
    assert lines == [f"settings.toml: {line}" for line in file.lines]
    assert number == ("1 problem" if len(lines) == 1 else f"{len(lines)} problems")


def test_no_line_shows_a_secret() -> None:
    written = [file for file in WRONG_FILES if "s3c" in file.text]
    assert len(written) >= 8
    assert not [line for file in written for line in file.lines if "s3c" in line]


def test_scenarios_are_told_apart() -> None:
    assert len(WRONG_FILES) > 100
    assert len({file.scenario for file in WRONG_FILES}) == len(WRONG_FILES)


def test_a_value_from_a_file_is_never_shown(settings_file: Path) -> None:
    Path("level").write_text("s3cret\n")
    lines = problems_of(settings_file, '[node]\nlog-level = "${file:level}"\n')
    assert lines[0] == "settings.toml: node.log-level: must be debug, info, warning or error; found ***"


def test_a_long_value_is_cut_off(settings_file: Path) -> None:
    line, _ = problems_of(settings_file, f'[node]\nlog-level = "{"x" * 500}"\n')
    assert line.endswith("xxx...")
    assert len(line) < 200


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "settings.toml: must be a file that can be read; found no such file or directory"),
        (b'[node]\nname = "\xff"\n', "settings.toml: line 2, column 9: must be UTF-8; found byte 0xff"),
        (b"a = " + b"[" * 100_000, "settings.toml: must not be nested as deep; found too many brackets"),
        (b"#" * 1_100_000, "settings.toml: must be at most 1048576 bytes; found more"),
    ],
)
def test_what_is_no_settings_file_at_all(settings_file: Path, content: bytes | None, line: str) -> None:
    if content is not None:
        settings_file.write_bytes(content)
    with pytest.raises(SettingsInvalid) as refused:
        load(settings_file, {})
    assert refused.value.lines() == [line, "1 problem"]
