"""`core-bridge replay`: lets the nodes send again the messages that a reconciliation found lost."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.cli.endpoints import operations_connection
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient, Problem, Unreachable
from bridge.client.progress import warn
from dedup.replay_plan import Entry, InvalidPlan, Plan, parse

#: Most positions, and ranges of them, in one call.
POSITIONS_AT_ONCE: Final = 10_000
RUNS_AT_ONCE: Final = 5_000
#: Ranges and refusals of an entry that the text shows; --format json shows all.
SHOWN_MOST: Final = 20

_EPILOG = f"""\
Takes the replay-plan.json of `{PROGRAM} reconcile` and asks --operations, the node whose bridge lost the
messages, to send them again: with their own IDs, to the same target, to nobody else. The target remembers
how far a plan has come. So the command can be cut short and given again: each message is sent once. What the
target has by now is not sent; --force sends it all the same, and is remembered apart.

Where a plan names bridges of several nodes, give it to each of them with --bridge.

Says for each stream what it sent, and what it could not: positions that the source no longer has (a journal
keeps them with retain-time, Kafka with retention), and messages that the target refused. Ends with

  sent 24 known 0 earlier 0 gone 0 refused 0 unknown 0

known: the target had them; earlier: covered by an earlier run of the same plan; unknown: others have the same
ID, and whether the target has these cannot be told: they are not sent. `filtered` is
added where the bridge's filter does not take what a plan names: it is not sent. With --dry-run nothing is
sent, and `sent` is what would be.

examples:
  {PROGRAM} replay --plan report/replay-plan.json --dry-run
  {PROGRAM} replay --plan report/replay-plan.json

exit codes: 0 done, 1 something could not be mended or no answer, 2 wrong usage, or no plan
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "send again what a reconciliation found lost"
    parser = subparsers.add_parser(
        "replay",
        parents=[common],
        help=summary,
        description=f"{summary.capitalize()}.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--plan", metavar="FILE", required=True, type=Path, help="replay-plan.json of a reconciliation"
    )
    parser.add_argument("--bridge", metavar="NAME", help="only what this bridge lost (default: all of them)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument(
        "--force", action="store_true", help="send also what the target seems to have: makes copies"
    )
    parser.set_defaults(run=_run)


@dataclass(slots=True)
class Mended:
    """The result of one entry of the plan."""

    bridge: str
    stream: str
    sent: int = 0
    known: int = 0
    earlier: int = 0
    unknown: list[list[int]] = field(default_factory=list)
    filtered: list[list[int]] = field(default_factory=list)
    gone: list[list[int]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    #: The reason why it stopped before its end; empty: it did not.
    failed: str = ""

    @property
    def unknown_count(self) -> int:
        """Number of messages for which it is unknown whether the target has them."""
        return _count(self.unknown)

    @property
    def gone_count(self) -> int:
        """Number of positions that the source no longer has."""
        return _count(self.gone)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the entry is left."""
        return not (self.unknown or self.filtered or self.gone or self.refused or self.failed)

    def add(self, answer: dict[str, Any]) -> None:
        """Add the result of one call."""
        self.sent += answer["sent"]
        self.known += answer["known"]
        self.earlier += answer["earlier"]
        self.unknown += answer["unknown"]
        self.filtered += answer["filtered"]
        self.gone += answer["gone"]
        self.refused += answer["refused"]


def _run(arguments: argparse.Namespace) -> int:
    try:
        plan = parse(arguments.plan.read_text(encoding="utf-8"))
    except (InvalidPlan, UnicodeDecodeError) as error:
        warn(f"{arguments.plan}: {error}")
        return Exit.USAGE
    except OSError as error:
        warn(f"{arguments.plan}: {error.strerror or error}")
        return Exit.USAGE
    names = {entry.bridge for entry in plan.entries}
    if arguments.bridge is not None and arguments.bridge not in names:
        known = ", ".join(sorted(names)) or "none"
        warn(f"{arguments.plan}: nothing of bridge {arguments.bridge}; its bridges: {known}")
        return Exit.USAGE
    entries = [entry for entry in plan.entries if arguments.bridge in (None, entry.bridge)]
    mended = asyncio.run(_replay(arguments, plan, entries))
    _show(arguments, plan, mended)
    return Exit.OK if all(one.is_whole for one in mended) else Exit.FAILED


async def _replay(arguments: argparse.Namespace, plan: Plan, entries: Sequence[Entry]) -> list[Mended]:
    mended: list[Mended] = []
    async with NodeClient(operations_connection(arguments)) as client:
        for entry in entries:
            one = Mended(entry.bridge, entry.stream)
            mended.append(one)
            try:
                for positions in _portions(entry.positions):
                    await _send(client, arguments, plan, entry, positions, one)
            except Problem as problem:  # the other bridges may succeed
                one.failed = f"{problem.code}: {problem}"
            except Unreachable as error:
                one.failed = f"{error.code}: {error}. Give the command again: nothing is sent twice"
                break
    return mended


async def _send(
    client: NodeClient,
    arguments: argparse.Namespace,
    plan: Plan,
    entry: Entry,
    positions: list[tuple[int, int]],
    mended: Mended,
) -> None:
    """Send one portion, call after call until all of it was processed. Raises: Problem, Unreachable."""
    while positions:
        asked = {
            "plan": plan.name, "bridge": entry.bridge, "stream": entry.stream, "store": entry.store,
            "positions": positions, "force": arguments.force, "dry-run": arguments.dry_run,
        }  # fmt: skip
        answer = await client.call(
            "POST",
            "/v1/replays",
            body=json.dumps(asked).encode(),
            headers={"Accept": "application/json", "Content-Type": "application/json"},
        )
        mended.add(answer.body)
        rest = answer.body["rest"]
        if rest is None:
            return
        positions = [(max(first, rest), last) for first, last in positions if last >= rest]


def _portions(positions: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The ranges in portions for one call each."""
    portion: list[tuple[int, int]] = []
    count = 0
    for first, last in positions:
        at = first
        while at <= last:
            end = min(last, at + POSITIONS_AT_ONCE - count - 1)
            portion.append((at, end))
            count += end - at + 1
            at = end + 1
            if count == POSITIONS_AT_ONCE or len(portion) == RUNS_AT_ONCE:
                yield portion
                portion, count = [], 0
    if portion:
        yield portion


def _show(arguments: argparse.Namespace, plan: Plan, mended: Sequence[Mended]) -> None:
    if arguments.format == "json":
        print(
            json.dumps(
                {"plan": plan.hash, "dry-run": arguments.dry_run, "entries": [asdict(one) for one in mended]}
            )
        )
        return
    for one in mended:
        print(
            f"{one.bridge} {one.stream}: sent {one.sent} known {one.known} earlier {one.earlier}"
            f" gone {one.gone_count} refused {len(one.refused)} unknown {one.unknown_count}"
            f"{_filtered([one])}"
        )
        if one.unknown:
            warn(
                f"{one.bridge} {one.stream}: whether the target has {_runs(one.unknown)} cannot be told:"
                " others have the same ID; --force sends without asking"
            )
        if one.filtered:
            warn(f"{one.bridge} {one.stream}: the bridge's filter does not take {_runs(one.filtered)}")
        if one.gone:
            warn(f"{one.bridge} {one.stream}: the source no longer has {_runs(one.gone)}")
        for refused in one.refused[:SHOWN_MOST]:
            warn(f"{one.bridge} {one.stream}: {refused['position']} was refused: {refused['reason']}")
        if one.failed:
            warn(f"{one.bridge} {one.stream}: {one.failed}")
    print(
        f"sent {sum(one.sent for one in mended)} known {sum(one.known for one in mended)}"
        f" earlier {sum(one.earlier for one in mended)} gone {sum(one.gone_count for one in mended)}"
        f" refused {sum(len(one.refused) for one in mended)}"
        f" unknown {sum(one.unknown_count for one in mended)}{_filtered(mended)}"
    )


def _filtered(mended: Sequence[Mended]) -> str:
    """The number of positions that filters do not take, where there are any."""
    found = sum(_count(one.filtered) for one in mended)
    return f" filtered {found}" if found else ""


def _count(runs: Sequence[Sequence[int]]) -> int:
    return sum(last - first + 1 for first, last in runs)


def _runs(runs: Sequence[Sequence[int]]) -> str:
    """``17, 40-59 and 3 more``."""
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:SHOWN_MOST])
    return shown + (f" and {len(runs) - SHOWN_MOST} more" if len(runs) > SHOWN_MOST else "")
