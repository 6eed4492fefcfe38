"""README.md is true: its tour works line by line, its links lead somewhere, its commands are there.

Blocks marked ``console`` are run in order against one node with the shipped settings; the tour with Kafka is
run in tests/kafka/nodes/test_readme.py. What follows a command is its output; `...` stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.demo.ports import free_ports
from tests.harness.eventually import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: The part that is about Kafka, and all the rest.
KAFKA_TOUR = README[README.index("\n## A tour with Kafka") : README.index("\n## What is guaranteed")]
OTHERWISE = README.replace(KAFKA_TOUR, "")


@dataclass(frozen=True)
class Step:
    command: str
    output: str


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def steps(text: str) -> Iterator[Step]:
    for block in blocks("console", text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command: list[str] = []
            output: list[str] = []
            for number, line in enumerate(part.splitlines(keepends=True)):
                if number == 0 or (line.startswith("> ") and not output):
                    command.append(line.removeprefix("> "))
                else:
                    output.append(line)
            yield Step("".join(command), "".join(output))


def matches(shown: str, found: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in shown.rstrip("\n").split("..."))
    return re.fullmatch(pattern, found.rstrip("\n")) is not None


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str], dict[str, str]]]:
    """A directory with the shipped settings beside the examples, a node, its ports and its PATH."""
    ports = dict(zip(("61616", "8161"), map(str, free_ports(2)), strict=True))
    settings = (ROOT / "settings.toml").read_text(encoding="utf-8")
    for table, scheme, port in (("acceptor", "ws", "61616"), ("operations", "http", "8161")):
        settings = settings.replace(
            f"[{table}]\n", f'[{table}]\nurl = "{scheme}://127.0.0.1:{ports[port]}"\n'
        )
    assert tomllib.loads(settings)["operations"]["url"].endswith(ports["8161"])
    (tmp_path / "settings.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "core-bridge"
    shim.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m bridge "$@"\n', encoding="utf-8"
    )
    shim.chmod(0o755)
    variables = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOSTNAME": "node-1"}
    log = tmp_path / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            ["core-bridge", "run"], cwd=tmp_path, env=variables, stdout=out, stderr=out
        ) as process,
    ):
        try:

            def listens() -> bool:
                assert process.poll() is None, log.read_text()
                return b"listening" in log.read_bytes()

            eventually(listens, "the node listens")
            yield tmp_path, variables, ports
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_the_tour_works_line_by_line(environment: tuple[Path, dict[str, str], dict[str, str]]) -> None:
    directory, variables, ports = environment

    def elsewhere(command: str) -> str:
        """On the ports of this node, which commands take from the settings.toml beside them."""
        for default, port in ports.items():
            command = command.replace(f"localhost:{default}", f"localhost:{port}")
        return command

    tour = list(steps(OTHERWISE))
    assert len(tour) > 10
    for step in tour:
        ended = subprocess.run(
            ["bash", "-c", elsewhere(step.command)],
            cwd=directory,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert matches(step.output, ended.stdout), f"{step.command}\n{ended.stdout}"
        assert ended.returncode == 0, step.command


def test_an_output_that_differs_is_noticed() -> None:
    assert matches("a ... c\n", "a b c\n")
    assert matches('{"id":"x",...}\n', '{"id":"x","more":1}\n')
    assert not matches("a ... c\n", "a b d\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a\n", "")


def test_every_link_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert len(links) >= 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_and_command_it_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^make ([a-z-]+)", "\n".join(blocks("sh")), re.MULTILINE))
    assert targets == {"run", "test", "serve", "kafka-up", "wheel", "report"}
    named = targets | set(re.findall(r"`make ([a-z-]+)`", README))
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    for command in set(re.findall(r"core-bridge ([a-z]+(?:-[a-z]+)*)\b(?=[ `])", README)):
        assert main([command, "--help"]) == 0
    capsys.readouterr()


def test_the_proof_it_shows_has_the_form_that_the_demo_prints() -> None:
    proof = next(line for line in README.splitlines() if line.startswith("sent "))
    words = proof.split()
    values = dict(zip(words[0::2], words[1::2], strict=True))
    assert values["sent"] == values["arrived"] == "20000"
    assert values["lost"] == values["doubled"] == values["out-of-order"] == "0"
    assert int(float(values["sent"]) / float(values["seconds"])) == int(values["messages/s"])


def test_the_bridge_it_shows_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[addresses.orders]\n" + blocks("toml")[0], encoding="utf-8")
    monkeypatch.setenv("HUB_TOKEN", "secret")
    assert main(["validate", "--settings", str(path)]) == 0
