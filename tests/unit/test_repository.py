"""Rules of the repository that no linter knows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.runtime import fault_injection

ROOT = Path(__file__).parents[2]
PACKAGES = ("bridge", "cluster", "dedup")
TEXT = {".md", ".py", ".toml", ".txt", ".sh", ".sql", ".in", ".yml", ".yaml", ".json", ".jsonl", ".csv", ""}

#: Most modules need less than 500; none is cut because it is long.
MOST_LINES = 800

#: What tools and nodes make, and git ignores.
MADE = re.compile(
    r"\.git|\.venv|\.hypothesis|\.coverage.*|build|dist|report|data|__pycache__|core-bridge-.*|.*(\.egg-info|_cache)"
)


def own_files() -> Iterator[Path]:
    """Every text file of the repository."""
    for directory, inner, names in os.walk(ROOT):
        inner[:] = sorted(name for name in inner if not MADE.fullmatch(name))
        for path in (Path(directory, name) for name in sorted(names) if not MADE.fullmatch(name)):
            if path.suffix in TEXT:
                yield path


def modules() -> list[Path]:
    """Every module that holds anything."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in paths if path.stat().st_size]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_names_a_place_of_somebodys_machine() -> None:
    # Put together here, so that this file does not find itself.
    places = re.compile(
        "|".join(("/" + "work/", "/" + "root/", "/" + "home/[a-z]", "/" + "Users/", r"C:\\" + "Users"))
    )
    found = [
        f"{name(path)}:{number}: {line.strip()[:80]}"
        for path in own_files()
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if places.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("lock", ["base.txt", "dev.txt"])
def test_lock_files_pin_every_package_by_hash_and_name_no_host(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host", text)
    pins = re.findall(r"^[a-z0-9][a-z0-9._-]*(\[[a-z,]+\])?==\S+.*$", text, re.MULTILINE)
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(pins) == len(blocks) > 10
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_both_locks_agree_where_they_meet_and_pin_the_build_backend() -> None:
    def pins(lock: str) -> dict[str, str]:
        text = (ROOT / "requirements" / lock).read_text()
        return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", text, re.MULTILINE))

    base, dev = pins("base.txt"), pins("dev.txt")
    assert {package: dev.get(package) for package in base} == base
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == [f"setuptools=={base['setuptools']}"]
    assert (ROOT / "requirements" / "build.in").read_text().split() == project["build-system"]["requires"]
    wanted = [re.split(r"[<>=\[; ]", requirement)[0] for requirement in project["project"]["dependencies"]]
    assert set(wanted) <= set(base)


def test_a_module_says_in_its_first_line_what_it_does() -> None:
    # A docstring: text in three quotes that begins in the first line, and has words there.
    silent = [name(path) for path in modules() if not re.match(r'r?"""\s*[^"\s]', path.read_text())]
    assert silent == []


def test_a_module_stays_short_enough_to_read_in_one_go() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_only_the_writer_and_its_rules_name_the_state_that_is_ahead_of_the_file() -> None:
    """Others read views of what is committed (`bridge.journal.values.views`)."""
    own = ("bridge/journal/rules/", "bridge/journal/writer/")
    found = []
    for path in modules():
        text = path.read_text()
        if name(path).startswith(own) or not re.search(r"rules\.state|writer\.state", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == "bridge.journal.rules.state":
                found.append(f"{name(path)}:{node.lineno}: imports it")
            if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("writer.state"):
                found.append(f"{name(path)}:{node.lineno}: reads it")
    assert found == []


def test_every_crash_point_is_reached_somewhere_and_none_has_another_name() -> None:
    used = set()
    for path in modules():
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "crash_point(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "crash_point":
                assert isinstance(node.args[0], ast.Constant), (
                    f"{name(path)}:{node.lineno}: not a literal name"
                )
                used.add(node.args[0].value)
    assert used - set(fault_injection.NAMES) == set()
    assert set(fault_injection.NAMES) - used == set()


#: Modules that compile an expression of other texts than their constants, and why its matching is bounded.
MADE_EXPRESSIONS = {
    "bridge/delivery_log/segments.py": "the node's name, escaped",
    "bridge/filters/lexing.py": "constants with other constants in their gaps",
    "bridge/filters/patterns.py": "escaped characters without repetition, and what a search costs is counted",
}
MATCHING = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}


def test_only_re2_matches_an_expression_that_is_not_a_constant() -> None:
    # Python's own backtracks: an operator's expression and somebody's name may hold the node for hours.
    found = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if ast.unparse(node.func.value) != "re" or node.func.attr not in MATCHING:
                continue
            words = {part.id for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
            if any(word != word.upper() for word in words):
                found.add(name(path))
    assert found == set(MADE_EXPRESSIONS)


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    assert re.search(r"^## \[?Unreleased\]?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "file",
    [
        "settings.toml", "docs/architecture.md", "docs/configuration.md", ".ci/run",
        "LICENSE", "CONTRIBUTING.md", "SECURITY.md",
    ],
)  # fmt: skip
def test_what_the_repository_promises_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_decisions_are_numbered_without_gaps_and_say_what_was_decided() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(len(decisions))]
    for path in decisions:
        headings = re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], path.name


def test_every_target_of_the_makefile_is_explained_and_ci_tests_only_through_make_test() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[0].split())
    assert set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)) == phony
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and line[0] != "#"]
    assert commands[-1] == "exec make test"
    assert not any(word in line for line in commands for word in ("pytest", "ruff", "mypy", "coverage"))


@pytest.mark.processes
def test_make_run_shows_the_proof_before_it_installs_what_the_report_needs(tmp_path: Path) -> None:
    """On a fresh machine with Java, as far as make says what it would do."""
    ran = subprocess.run(
        ["make", "-n", "run", "JAVA=java", f"VENV={tmp_path / 'venv'}", f"LOGS={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    steps = ("base.txt", "core-bridge demo", "reconcile.txt", "core-bridge reconcile")
    places = [ran.stdout.index(step) for step in steps]
    assert places == sorted(places), ran.stdout


def test_the_ci_workflow_runs_the_two_commands_and_nothing_else_on_every_version_that_is_promised() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"^ +run: (.*)$", workflow, re.MULTILINE) == ["make run", "make test"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    promised = [found[1] for text in classifiers if (found := re.search(r"Python :: (3\.\d+)$", text))]
    (matrix,) = re.findall(r"^ +python: \[(.+)\]$", workflow, re.MULTILINE)
    assert matrix.replace('"', "").split(", ") == promised


def test_the_licence_is_the_whole_apache_license_and_the_metadata_names_it() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert all(f"   {number}. " in text for number in range(1, 10))
    assert "END OF TERMS AND CONDITIONS" in text
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"


def test_the_image_runs_as_a_plain_user_from_the_base_lock_and_answers_for_its_health() -> None:
    # Read only: no container engine is needed to see that the parts are named.
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    instructions = [line.split(None, 1) for line in lines if line and line[0] not in "# \t"]
    words = [word for word, _ in instructions]
    assert words[-2:] == ["ENTRYPOINT", "CMD"]
    text = "\n".join(lines)
    assert "--require-hashes --requirement requirements/base.txt" in " ".join(text.split())
    health = next(rest for word, rest in instructions if word == "HEALTHCHECK")
    assert health.endswith('CMD ["core-bridge", "ready", "--alive"]')
    users = [rest for word, rest in instructions if word == "USER"]
    assert users
    assert users[-1] not in {"root", "0"}
    assert words.index("VOLUME") < words.index("ENTRYPOINT")
    for rest in (rest for word, rest in instructions if word == "COPY" and "--from" not in rest):
        sources = [part for part in rest.split()[:-1] if not part.startswith("--")]
        assert [source for source in sources if not (ROOT / source).exists()] == []
