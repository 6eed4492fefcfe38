"""`core-bridge replay`: a plan cut into calls, what it says of their answers, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli import main, replay
from bridge.client.node_client import Answer, Problem, Unreachable
from dedup.replay_plan import Entry, encode, make

FIRST = Entry("a", "journal:i:orders:0", "orders", "hub", "store-1", ((1, 3), (7, 7)))
SECOND = Entry("b", "kafka:c:t:0", "orders", "us", "kafka:u", ((0, 24_999),))
DONE = {
    "sent": 0,
    "known": 0,
    "earlier": 0,
    "unknown": [],
    "filtered": [],
    "gone": [],
    "refused": [],
    "rest": None,
}


class FakeNode:
    """Answers calls; an exception is raised."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.answers: list[Mapping[str, Any] | Exception] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def call(self, method: str, path: str, *, body: bytes, headers: object) -> Answer:
        assert (method, path) == ("POST", "/v1/replays")
        self.calls.append(json.loads(body))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return Answer(200, DONE | dict(answer))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    made = FakeNode()
    monkeypatch.setattr(replay, "NodeClient", lambda _connection: made)
    return made


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "plan.json").write_text(encode(make([FIRST, SECOND])))
    return str(tmp_path / "plan.json")


runs = st.lists(st.integers(0, 50), min_size=1, max_size=20, unique=True).map(
    lambda numbers: tuple((9 * n, 9 * n + n % 8) for n in sorted(numbers))
)


@given(runs, st.integers(1, 30), st.integers(1, 5))
def test_portions_hold_every_position_once_in_order_within_their_limits(
    positions: tuple[tuple[int, int], ...], most: int, most_runs: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "POSITIONS_AT_ONCE", most)
        patch.setattr(replay, "RUNS_AT_ONCE", most_runs)
        portions = list(replay._portions(positions))
    places = [[p for first, last in portion for p in range(first, last + 1)] for portion in portions]
    assert [p for portion in places for p in portion] == [p for a, b in positions for p in range(a, b + 1)]
    assert all(1 <= len(portion) <= most for portion in places)
    assert all(len(portion) <= most_runs for portion in portions)


def test_each_stream_is_sent_in_calls_and_summed_up(
    node: FakeNode, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node.answers = [{"sent": 2, "known": 1, "rest": 7}, {"sent": 1}, {"sent": 9_000, "earlier": 1_000}]
    assert main(["replay", "--plan", plan]) == 0
    first, again, *others = node.calls
    name = json.loads(Path(plan).read_text())["plan"][:16]
    assert first == {
        "plan": name, "bridge": "a", "stream": FIRST.stream, "store": "store-1",
        "positions": [[1, 3], [7, 7]], "force": False, "dry-run": False,
    }  # fmt: skip
    assert again["positions"] == [[7, 7]]
    assert [call["positions"] for call in others] == [[[0, 9_999]], [[10_000, 19_999]], [[20_000, 24_999]]]
    assert capsys.readouterr().out.splitlines() == [
        "a journal:i:orders:0: sent 3 known 1 earlier 0 gone 0 refused 0 unknown 0",
        "b kafka:c:t:0: sent 9000 known 0 earlier 1000 gone 0 refused 0 unknown 0",
        "sent 9003 known 1 earlier 1000 gone 0 refused 0 unknown 0",
    ]


def test_what_could_not_be_mended_is_listed_and_fails(
    node: FakeNode, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [[2 * n, 2 * n] for n in range(30)]
    refused = [{"position": 3, "reason": "MESSAGE_TOO_LARGE: it is"}]
    node.answers = [{"sent": 1, "gone": [[1, 2]], "refused": refused}, {"gone": gone}]
    assert main(["replay", "--plan", plan, "--dry-run", "--force"]) == 1
    assert all(call["dry-run"] and call["force"] for call in node.calls)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "sent 1 known 0 earlier 0 gone 32 refused 1 unknown 0"
    assert "the source no longer has 1-2\n" in shown.err
    assert ", 38 and 10 more" in shown.err
    assert "3 was refused: MESSAGE_TOO_LARGE: it is" in shown.err


def test_an_error_ends_its_stream_only_and_no_answer_all_of_it(
    node: FakeNode, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node.answers = [Problem(404, "NOT_FOUND", "the bridge a is not one of this node's")]
    assert main(["replay", "--plan", plan]) == 1
    assert [call["bridge"] for call in node.calls] == ["a", "b", "b", "b"]
    assert "NOT_FOUND: the bridge a" in capsys.readouterr().err
    node.calls.clear()
    node.answers = [Unreachable("no answer in time")]
    assert main(["replay", "--plan", plan]) == 1
    assert [call["bridge"] for call in node.calls] == ["a"]
    assert "Give the command again" in capsys.readouterr().err


def test_one_bridge_alone_and_all_as_json(
    node: FakeNode, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--plan", plan, "--bridge", "a", "--format", "json"]) == 0
    assert [call["bridge"] for call in node.calls] == ["a"]
    shown = json.loads(capsys.readouterr().out)
    assert shown["entries"] == [
        {
            "bridge": "a",
            "stream": FIRST.stream,
            "failed": "",
            **{k: v for k, v in DONE.items() if k != "rest"},
        }
    ]
    assert main(["replay", "--plan", plan, "--bridge", "c"]) == 2
    assert "its bridges: a, b" in capsys.readouterr().err


def test_what_is_no_plan_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.json").write_text("{}")
    for name, rule in (("no.json", "v: this version reads"), ("absent.json", "No such file")):
        assert main(["replay", "--plan", str(tmp_path / name)]) == 2
        assert rule in capsys.readouterr().err
