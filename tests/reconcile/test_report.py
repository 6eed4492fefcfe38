"""A report from rows, without Spark: verdict, summary, plan, page, its place, and whether it is verified."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.reconcile import charts, page, plan, report
from dedup.reconcile.errors import BadInput
from dedup.reconcile.finding_list import SHOWN
from dedup.reconcile.rows import KINDS, Facts, Hour, IdCache, Input, Latency, Total
from dedup.reconcile.storage import Local, NeedsSpark, local, place
from dedup.reconcile.summary import EXIT_CODES, MAX_FINDINGS, NOT_IN_LOGS, Verdict, grouped, summary, verdict
from dedup.reconcile.text import duration, positions, visible
from dedup.reconcile.verify import SUMS, verify
from dedup.replay_plan import Entry, encode, parse
from tests.reconcile import facts as samples
from tests.reconcile.facts import HOSTILE, finding, flow
from tests.reconcile.packages import pack_dedup


def page_of(facts: Facts) -> str:
    return page.page(facts, summary(facts), samples.MADE)


# ---------------------------------------------------------------- verdict and summary


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, Verdict.CLEAN),
        ({"lost": 1}, Verdict.LOST),
        ({"doubled": 1}, Verdict.LOST),
        ({"lost": 1, "unknown": 1}, Verdict.LOST),
        ({"unknown": 1}, Verdict.UNKNOWN),
        ({"unsent": 1}, Verdict.UNKNOWN),
        ({"out_of_order": 1, "late": 1, "open": 1, "refused": 1, "rejected": 1}, Verdict.CLEAN),
    ],
)
def test_only_loss_doubles_and_gaps_make_a_verdict(changed: dict[str, int], expected: Verdict) -> None:
    assert verdict([flow(), replace(flow(), **changed)], []) is expected  # type: ignore[arg-type]


def test_an_id_that_was_accepted_twice_is_a_double_also_where_no_bridge_is() -> None:
    assert verdict([flow(None)], [Total("repeated-id", 1, 1)]) is Verdict.LOST


def test_each_verdict_has_the_exit_code_of_the_contract() -> None:
    assert {found.value: code for found, code in EXIT_CODES.items()} == {"clean": 0, "lost": 3, "unknown": 4}


def test_the_summary_has_the_keys_of_the_contract_and_no_others() -> None:
    found = summary(samples.faulty())
    keys = ["v", "verdict", "bridges", "findings", "inputs", "left-out", "missing", "id-cache-size-needed"]
    keys += ["waiting", "unread"]
    assert list(found.content) == keys
    assert (found.content["v"], found.content["verdict"], found.exit_code) == (1, "lost", 3)
    counts = [
        "sent",
        "received",
        "lost",
        "doubled",
        "unsent",
        "out-of-order",
        "late",
        "open",
        "rejected",
        "unknown",
    ]
    assert all(list(row) == ["bridge", "stream", "address", *counts] for row in found.content["bridges"])
    row = next(row for row in found.content["bridges"] if row["bridge"] == "orders-to-hub")
    assert [row[key] for key in counts] == [1_200_000, 1_199_476, 24, 3, 1, 16, 312, 500, 0, 0]
    assert found.content["findings"][0] == {
        "kind": "lost",
        "stream": samples.ORDERS,
        "positions": [[40_112, 40_131], [881_920, 881_923]],
        "ids": [],
    }
    rejected = found.content["findings"][-1]
    assert (rejected["kind"], rejected["positions"], rejected["ids"]) == ("rejected", [], ["order-4712"])
    assert found.content["inputs"][0].keys() == {"path", "sha256", "lines"}
    assert found.content["id-cache-size-needed"] == 14_233


def test_what_is_cut_from_the_summary_is_never_the_gravest() -> None:
    many = [finding("rejected", None, None, id=f"id-{number}") for number in range(MAX_FINDINGS)]
    found = grouped([*many, finding("lost", 7, 7)])
    assert found[0]["positions"] == [[7, 7]]
    assert sum(len(entry["positions"]) + len(entry["ids"]) for entry in found) == MAX_FINDINGS


def test_two_stores_of_one_stream_are_two_findings() -> None:
    found = grouped([finding("lost", 1, 1), finding("lost", 2, 2, store="other")])
    assert sorted(entry["positions"] for entry in found) == [[[1, 1]], [[2, 2]]]


def test_the_terminal_hears_the_verdict_first_and_the_worst_bridge_next() -> None:
    lines = summary(samples.faulty()).lines
    assert lines[0] == "lost: 24 messages are lost, 3 doubled"
    assert lines[1].startswith(
        "bridge orders-to-hub sent 1200000 received 1199476 lost 24 doubled 3 unsent 1"
    )
    assert lines[-1] == "8 lines in 1 of 6 files could not be read"
    clean = "clean: Every message that the logs tell of is accounted for"
    assert summary(samples.clean()).lines[0] == clean
    unknown = replace(samples.clean(), flows=[flow(unknown=7)])
    assert summary(unknown).lines[0].startswith("unknown: Nothing is known to be lost")


def test_what_waits_is_said_with_its_age_and_what_no_log_can_tell() -> None:
    since, sent = samples.START_MS, samples.START_MS - 60_000
    flows = [
        flow(waiting=600, waiting_since_ms=since + 5_000, sent_ms=sent, open=1),
        flow(stream=samples.INVOICES, waiting=400, waiting_since_ms=since, sent_ms=None),
        flow("unmeasured", waiting=1, waiting_since_ms=None, sent_ms=None),
        flow(None),
        flow(None, "journal:1:payments:0", address="payments", target="edge", received=7),
    ]
    found = summary(replace(samples.clean(), flows=flows))
    assert (found.verdict, found.exit_code) == (Verdict.CLEAN, 0)
    assert found.lines[0] == (
        "clean: Every message that was delivered is accounted for; 1,002 messages are still on the way"
    )
    assert list(found.lines[-4:]) == [
        (
            "1,000 messages are waiting at the source of bridge orders-to-hub, the first since "
            "2026-11-21 08:00:00 UTC; its newest sent line is of 2026-11-21 07:59:00 UTC"
        ),
        "1 message is waiting at the source of bridge unmeasured; its newest sent line has no time",
        "of 7 messages that clients sent to payments at edge no log says that a bridge has sent any",
        NOT_IN_LOGS,
    ]
    waiting = [(row["waiting"], row["since"], row["newest-sent"]) for row in found.content["waiting"]]
    assert waiting == [(600, since + 5_000, sent), (400, since, None), (1, None, None)]
    assert [row["messages"] for row in found.content["unread"]] == [7]
    text = page.page(replace(samples.clean(), flows=flows), found, samples.MADE)
    assert "1,000 messages are waiting at the source of bridge orders-to-hub, the first since" in text


def test_what_a_bridge_shares_with_readers_is_not_said_to_be_sent_by_nobody() -> None:
    flows = [
        flow(stream="journal:1:$bridge.orders-to-hub/orders:5", received=4, sent=4),
        flow(None, "journal:1:orders:0", address="orders", target="edge", received=9),
        flow(None, "journal:2:orders:0", address="orders", target="other", received=3),
    ]
    told = summary(replace(samples.clean(), flows=flows)).lines
    assert "of 3 messages that clients sent to orders at other no log says that a bridge has sent any" in told
    shared = "of 9 messages that clients sent to orders at edge bridges share a queue with readers"
    assert f"{shared}: no log says which are left there" in told


def test_a_log_cannot_move_the_cursor_of_a_terminal() -> None:
    told = "\n".join(summary(samples.hostile()).lines)
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert r"\u{1b}[31m" in told


def test_logs_without_a_message_are_not_called_accounted_for() -> None:
    empty = Facts([], [], [], [], [], [], [])
    read = replace(empty, inputs=[Input("/logs/eu-20261121T185800-000001.jsonl", "", 1, 0)])
    assert summary(read).lines == ("clean: The logs hold no messages",)
    assert "No bridge has a line" in page_of(empty)


# ---------------------------------------------------------------- the replay plan


def test_the_plan_names_what_is_lost_of_each_flow_in_order_and_merged() -> None:
    lost = [finding("lost", 9, 9), finding("lost", 3, 5), finding("lost", 6, 7), finding("lost", 4, 4)]
    made = plan.plan(lost, samples.faulty().flows)
    where = ("orders-to-hub", samples.ORDERS, "orders", "hub", samples.STORE)
    assert made.entries == (Entry(*where, positions=((3, 7), (9, 9))),)


def test_a_plan_is_called_by_the_hash_of_its_entries_and_can_be_read_again() -> None:
    made = plan.plan([finding("lost", 1, 2)], [flow()])
    (entry,) = json.loads(encode(made))["entries"]
    text = json.dumps([entry], sort_keys=True, separators=(",", ":"))
    assert made.hash == hashlib.sha256(text.encode()).hexdigest()
    assert parse(encode(made)) == made
    assert parse(encode(plan.plan([], []))).entries == ()


# ---------------------------------------------------------------- the page


class Outline(HTMLParser):
    """Checks that every element is closed in order, and keeps what a test asks for."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len(dict(attributes)) == len(attributes), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


SAMPLES = pytest.mark.parametrize("sample", [samples.clean, samples.faulty, samples.hostile, samples.large])


@SAMPLES
def test_the_page_is_one_file_without_script_that_fetches_nothing(sample: Callable[[], Facts]) -> None:
    text = page_of(sample())
    found = Outline(text)
    assert {tag for tag, _ in found.elements}.isdisjoint(
        {"script", "img", "link", "iframe", "object", "base"}
    )
    for tag, attributes in found.elements:
        assert not {name for name in attributes if name.startswith("on")}, tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#"), attributes
    assert "url(" not in text
    assert "@import" not in text
    policy = next(a["content"] for tag, a in found.elements if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


@SAMPLES
def test_ids_of_elements_are_unique_and_links_lead_to_them(sample: Callable[[], Facts]) -> None:
    elements = Outline(page_of(sample())).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {attributes["href"] for tag, attributes in elements if tag == "a"} <= {
        f"#{found}" for found in ids
    }


def test_what_a_log_smuggles_in_is_shown_and_does_nothing() -> None:
    text = page_of(samples.hostile())
    text.encode("utf-8")  # also half of a surrogate pair
    assert "<script" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", text)
    shown = visible(HOSTILE)
    assert r"\u{202e}abc\u{1b}[31m\u{0}\u{d800}" in shown
    # Bridge, stream, store, address, target, ID, detail, path: in the tables, and in the charts' titles.
    assert Outline(text).text.count(shown) >= 15


def test_the_page_can_be_written_from_a_zip_file(tmp_path: Path) -> None:
    """Which is what spark-submit is given."""
    packages = tmp_path / "dedup.zip"
    pack_dedup(packages)
    program = (
        "from dedup.reconcile import page; from dedup.reconcile.rows import Facts\n"
        "from dedup.reconcile.summary import summary\n"
        "facts = Facts([], [], [], [], [], [], [])\n"
        "print(page.__file__, page.page(facts, summary(facts), page.Made(0, '1.2.3', 60_000)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    place_, _, text = ended.stdout.partition(" ")
    assert place_.startswith(str(packages))
    assert "by core bridge 1.2.3." in Outline(text).text


def test_the_page_names_exact_positions_and_ids_of_every_kind() -> None:
    text = Outline(page_of(samples.faulty())).text
    for expected in (
        "40112–40131",
        "881920–881923",
        "order-4711",
        "order-4712",
        "MESSAGE_TOO_LARGE",
        "702118",
    ):
        assert expected in text
    assert "24 messages are lost, 3 doubled." in text
    assert "replay --plan" in text
    assert all(sum_ in text for sum_ in (found.sha256 for found in samples.faulty().inputs))


def test_the_time_that_the_logs_span_is_named_once_where_it_is_one_moment() -> None:
    extent = "1 bridge with 1 stream in 6 log files, 2026-11-21 08:00:00"
    moment = replace(samples.clean(), flows=[flow(first_ms=samples.START_MS, last_ms=samples.START_MS)])
    assert f"{extent} UTC." in Outline(page_of(moment)).text
    day = replace(samples.clean(), flows=[flow()])
    assert f"{extent} to 21:59:55 UTC." in Outline(page_of(day)).text


def test_every_kind_of_finding_can_be_shown() -> None:
    for kind in KINDS:
        found = [finding(kind, 1, 2)]
        facts = replace(samples.clean(), findings=found, totals=samples.totals(found))
        assert f"<h3>{SHOWN[kind].title}</h3>" in page_of(facts)


def test_a_large_report_has_a_page_that_a_phone_can_load_and_says_what_it_leaves_out() -> None:
    text = page_of(samples.large())
    assert len(text) < 1 << 20
    assert "200 of 1,000,000 are shown" in text
    assert "The 200 worst of 2,500" in text
    assert "The first 200 of 2,500" in text


@given(
    st.lists(
        st.builds(
            Hour,
            bridge=st.just("b"),
            hour_ms=st.integers(0, 400_000).map(lambda hour: hour * charts.HOUR_MS),
            sent=st.integers(0, 10**12),
            received=st.integers(0, 10**12),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_time_line_loses_no_message_and_has_no_hole(hours: list[Hour]) -> None:
    step_ms, columns = charts.buckets(hours)
    assert 1 <= len(columns) <= charts.MAX_COLUMNS
    steps = [later.start_ms - earlier.start_ms for earlier, later in pairwise(columns)]
    assert steps == [step_ms] * (len(columns) - 1)
    assert columns[0].start_ms % step_ms == 0, "columns begin at round times"
    assert sum(column.sent for column in columns) == sum(hour.sent for hour in hours)
    assert sum(column.received for column in columns) == sum(hour.received for hour in hours)
    line = charts.time_line("b", hours)
    assert len(line.columns) == len(columns)
    bars = [bar for slot in line.columns for bar in slot.bars]
    assert len(bars) == sum(bool(column.sent) + bool(column.received) for column in columns)
    assert all(line.top <= bar.y <= bar.y + bar.height <= line.top + line.plot + 0.1 for bar in bars)


@given(st.lists(st.integers(-(10**6), 10**13), min_size=5, max_size=5).map(sorted))
def test_any_delivery_time_has_a_place_on_the_chart_even_a_negative_one(times: list[int]) -> None:
    latency = [Latency("b", "journal:x:a:0", "a", 1, *times)]
    drawn = Outline(page_of(replace(samples.clean(), hours=[], latency=latency)))
    places = [
        float(str(value).removesuffix("%"))
        for tag, attributes in drawn.elements
        for name, value in attributes.items()
        if tag in {"line", "circle"} and name in {"x1", "x2", "cx"}
    ]
    assert len(places) >= 3 * 2 + 1
    assert all(0 <= place_ <= 100 for place_ in places)


def test_streams_of_one_address_are_told_apart() -> None:
    text = Outline(page_of(samples.clean())).text
    assert all(f"shop.events partition {number}" in text for number in range(4))
    assert "orders partition" not in text


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0 ms"), (8, "8 ms"), (999, "999 ms"), (1500, "1.5 s"), (60_000, "1 min"), (5_400_000, "1.5 h")],
)
def test_durations_are_short(ms: int, shown: str) -> None:
    assert duration(ms) == shown


def test_positions_can_be_copied_as_they_are() -> None:
    assert positions(1_000_000, 1_000_000) == "1000000"
    assert positions(17, 20) == "17–20"
    assert positions(None, None) == ""


# ---------------------------------------------------------------- its place, and its hashes


def written(directory: Path, facts: Facts | None = None) -> str:
    """A report without its tables, but for a stand-in and what Hadoop leaves beside it."""
    staged = directory / "staged"
    (staged / "flows").mkdir(parents=True)
    (staged / "flows" / "part-0.parquet").write_bytes(b"PAR1")
    (staged / "flows" / ".part-0.parquet.crc").write_bytes(b"crc")
    report.write_files(Local(), str(staged), facts or no_inputs(), [finding("lost", 1, 2)], samples.MADE)
    report.publish(Local(), str(staged), str(directory / "report"))
    return str(directory / "report")


def no_inputs() -> Facts:
    return replace(samples.faulty(), inputs=[])


def with_log(path: Path, content: bytes = b'{"v":1}\n') -> Facts:
    path.write_bytes(content)
    return replace(samples.clean(), inputs=[Input(str(path), hashlib.sha256(content).hexdigest(), 1, 0)])


def test_a_report_holds_its_files_and_their_hashes_as_sha256sum_writes_them(tmp_path: Path) -> None:
    directory = Path(written(tmp_path))
    lines = (directory / SUMS).read_text().splitlines()
    names = ["flows/part-0.parquet", "replay-plan.json", "report.html", "summary.json"]
    assert lines == [
        f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}" for name in names
    ]
    assert Local().files(str(directory)) == [SUMS, *names]
    assert json.loads((directory / "replay-plan.json").read_text())["entries"][0]["positions"] == [[1, 2]]
    assert json.loads((directory / "summary.json").read_text())["verdict"] == "lost"
    assert verify(str(directory)) == []


def test_verify_names_every_file_that_is_not_what_it_was(tmp_path: Path) -> None:
    directory = Path(written(tmp_path))
    (directory / "report.html").write_text("all is well")
    (directory / "replay-plan.json").unlink()
    (directory / "notes.txt").write_text("mine")
    assert verify(str(directory)) == [
        "replay-plan.json: missing",
        "report.html: changed since the report was written",
        "notes.txt: not of this report",
    ]


def test_verify_notices_a_log_that_changed_or_went(tmp_path: Path) -> None:
    log = tmp_path / "a b%20c-20261121T185800-000001.jsonl"
    directory = written(tmp_path, with_log(log))
    assert verify(directory) == []
    log.write_bytes(b'{"v":2}\n')
    assert verify(directory) == [f"{log}: changed since the report was written"]
    log.unlink()
    assert verify(directory) == [f"{log}: missing"]


def test_verify_knows_a_log_that_was_still_being_written(tmp_path: Path) -> None:
    log = tmp_path / "n-20261121T185800-000001.jsonl.open"
    directory = written(tmp_path, with_log(log))
    closed = log.rename(log.with_suffix(""))
    assert verify(directory) == [], "the same bytes under their final name"
    with closed.open("ab") as file:
        file.write(b'{"v":1}\n')
    assert verify(directory) == [f"{log}: was still being written, and has been completed since"]
    closed.rename(log)
    assert verify(directory) == [f"{log}: changed since the report was written (it was still being written)"]


def test_a_summary_that_cannot_be_read_is_a_problem_not_a_traceback(tmp_path: Path) -> None:
    directory = written(tmp_path)
    (Path(directory) / "summary.json").write_text("[]")
    assert verify(directory) == [
        "summary.json: changed since the report was written",
        "summary.json: cannot be read, so the logs were not looked at",
    ]


@pytest.mark.parametrize(
    "line", ["no hash", f"{'a' * 64}  /etc/passwd", f"{'a' * 64}  ../x", f"{'a' * 63}  x"]
)
def test_hashes_that_lead_out_of_the_report_are_no_report(tmp_path: Path, line: str) -> None:
    (tmp_path / SUMS).write_text(line + "\n")
    with pytest.raises(BadInput, match=f"{SUMS}:1: must be a hash and a path"):
        verify(str(tmp_path))


def test_only_an_earlier_report_is_ever_replaced(tmp_path: Path) -> None:
    directory = Path(written(tmp_path))
    report.check_output(Local(), str(directory))
    report.check_output(Local(), str(tmp_path / "new"))
    (tmp_path / "empty").mkdir()
    report.check_output(Local(), str(tmp_path / "empty"))

    (directory / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"must hold an earlier report only; found notes\.txt beside it"):
        report.check_output(Local(), str(directory))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(BadInput, match=r"must be new, empty or an earlier report; found thesis\.tex"):
        report.check_output(Local(), str(tmp_path / "mine"))
    with pytest.raises(BadInput, match="must be a directory; found a file"):
        report.check_output(Local(), str(tmp_path / "mine" / "thesis.tex"))
    with pytest.raises(BadInput, match="must not be a mount point"):
        report.check_output(Local(), "/")


def test_a_report_takes_an_earlier_ones_place_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    directory = Path(written(tmp_path))
    written(tmp_path, replace(samples.clean(), inputs=samples.clean().inputs[:1]))
    assert json.loads((directory / "summary.json").read_text())["verdict"] == "clean"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


class FullDisk(Local):
    """Renames one directory and then no other."""

    def __init__(self) -> None:
        self.renames = 0

    def rename(self, source: str, target: str) -> None:
        self.renames += 1
        if self.renames == 2:
            raise OSError("no space left")
        super().rename(source, target)


def test_a_report_that_cannot_take_its_place_leaves_the_earlier_one_there(tmp_path: Path) -> None:
    directory = written(tmp_path)
    (tmp_path / "staged").mkdir()
    with pytest.raises(OSError, match="no space left"):
        report.publish(FullDisk(), str(tmp_path / "staged"), directory)
    assert verify(directory) == []


def test_a_path_tells_whether_it_is_on_this_machine(tmp_path: Path) -> None:
    assert local("/a b") == local("file:/a b") == local("file:///a b") == Path("/a b")
    assert local("logs/a") == Path("logs/a")
    assert local("/a:b") == Path("/a:b")
    assert local("hdfs://namenode/logs") is None
    assert local("s3a://bucket/logs") is None
    with pytest.raises(NeedsSpark):
        place("hdfs://namenode/logs")
    (tmp_path / "link").symlink_to(tmp_path / "report")
    assert place(str(tmp_path / "link"))[1] == str(tmp_path / "report")


def test_an_id_cache_that_would_have_done_is_the_largest_of_all_addresses() -> None:
    caches = [IdCache("s", "a", 10, 1, 7), IdCache("s", "b", 10, 2, 9)]
    assert summary(replace(samples.clean(), id_caches=caches)).content["id-cache-size-needed"] == 9
    assert "No producer’s ID came again" in page_of(
        replace(samples.clean(), id_caches=[IdCache("s", "a", 10, 0, 0)])
    )


# ---------------------------------------------------------------- files that are not there


def test_files_that_are_missing_empty_or_not_read_make_the_verdict_unknown_and_are_named(
    tmp_path: Path,
) -> None:
    def files(*numbers: int, lines: int = 1) -> list[Input]:
        return [
            Input(f"/logs/eu-20261121T185800-{number:06}.jsonl", "ab" * 32, lines, 0) for number in numbers
        ]

    whole = replace(samples.clean(), inputs=files(3, 4))
    cases = {
        "not read, because of their endings: /logs/x.jsonl.bz2": replace(
            whole, left_out=["/logs/x.jsonl.bz2"]
        ),
        "missing between the files of node eu: 5 to 7": replace(whole, inputs=files(3, 4, 8)),
        "none of the files holds a line": replace(whole, inputs=files(3, lines=0)),
    }
    assert summary(whole).verdict is Verdict.CLEAN
    for sentence, facts in cases.items():
        found = summary(facts)
        assert (found.verdict, found.exit_code) == (Verdict.UNKNOWN, 4)
        assert sentence in found.lines
        assert f"{sentence[0].upper()}{sentence[1:]}." in page.page(facts, found, samples.MADE)
    assert summary(cases["missing between the files of node eu: 5 to 7"]).content["missing"] == [
        {"node": "eu", "numbers": [5, 7]}
    ]
    lost = replace(samples.faulty(), left_out=["/logs/x.jsonl.bz2"])
    assert summary(lost).verdict is Verdict.LOST


def test_what_is_on_the_way_is_a_figure_of_its_own() -> None:
    calm = samples.clean()
    facts = replace(
        calm, flows=[*calm.flows, flow(waiting=1_000, open=20, waiting_since_ms=samples.START_MS)]
    )
    found = summary(facts)
    assert found.waiting == summary(calm).waiting + 1_020
    assert re.search(r"<dt>Waiting</dt><dd>1.?020</dd>", page.page(facts, found, samples.MADE))
    assert any(" waiting 1000" in told for told in found.lines)
