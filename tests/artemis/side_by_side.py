"""The same cases on a real Artemis and here, compared: which facts differ, and why.

``python -m tests.artemis.side_by_side`` prints both as a Markdown table.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.artemis import ours
from tests.artemis.ours import Result
from tests.filters.artemis import VERSION, compiled

PROGRAM: Final = Path(__file__).with_name("Cases.java")
#: Longest time of all cases on Artemis, in seconds; they take some 30.
RUN_TIMEOUT_S: Final = 300

_OF_AN_ADDRESS: Final = (
    "Artemis ignores the address of a qualified name; here the queue must be of that address"
)
_STARTS_LATER: Final = (
    "Artemis logs a warning and never deploys the bridge; here it says what it waits for, and starts when "
    "the queue is made"
)
_HQ: Final = (
    "Only Artemis's HornetQ protocol module knows this name; here it is the other name of `_AMQ_DUPL_ID`"
)
_ONE_ANYCAST: Final = (
    "Here an ANYCAST address has one queue, named like the address, whose readers take turns"
)
_IDS_STAY: Final = "In Artemis an address's IDs go with its last queue; here they belong to the address"

#: Facts that differ, by case and name, and why.
DIFFERENCES: Final[Mapping[tuple[str, str], str]] = {
    ("fqqn-bridge", "wrong::sub1 arrived"): _OF_AN_ADDRESS,
    ("fqqn-bridge", "left in sub1"): _OF_AN_ADDRESS,
    ("fqqn-bridge", "news::later, made later, arrived"): _STARTS_LATER,
    ("fqqn-bridge", "left in later"): _STARTS_LATER,
    ("filtered-queue", "arrived after a restart"): (
        "Artemis's updateQueue does not store the new filter, and a restart brings the old one back; here it "
        "is stored"
    ),
    ("ids-as-properties", "_HQ_DUPL_ID"): _HQ,
    ("ids-as-properties", "both, different"): f"{_HQ}, and a message with two IDs is refused",
    ("ids-as-properties", "UTF-8 bytes of the known text"): (
        "Artemis compares a text as UTF-16 bytes; here a text is its UTF-8 bytes"
    ),
    ("ids-as-properties", "stored"): "The sum of the rows above",
    ("parallel-ids", "each ID once"): (
        "Artemis stores some IDs several times that clients send at once; here one writer checks and stores"
    ),
    ("queue-later", "made later, by default"): (
        "Here a queue is a place in the address's log: at the earliest message that is still there, unless "
        "asked otherwise"
    ),
    ("anycast-queue-later", "second queue"): _ONE_ANYCAST,
    ("anycast-queue-later", "in the first queue"): _ONE_ANYCAST,
    ("anycast-queue-later", "in the second queue"): _ONE_ANYCAST,
    ("deleted-queue", "ID after the last was deleted"): _IDS_STAY,
    ("auto-delete-conditions", "its reader comes back later and gets"): (
        "In Artemis its queue gets what follows; here also what has come since the old one went"
    ),
}

#: Of these, the facts that chance decides on Artemis: they may be equal in a run.
BY_CHANCE: Final = frozenset({("parallel-ids", "each ID once")})


def artemis(directory: Path, *cases: str) -> dict[str, Result]:
    """What real brokers do, by case: these, or all.

    Raises:
        Missing: no Java, Maven or network.
        AssertionError: a case could not be run.
    """
    classes, data = directory / "classes", directory / "data"
    classes.mkdir(parents=True)
    command = [*compiled(PROGRAM, classes), str(data), *cases]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return {
        result.case: result for result in (Result(**json.loads(line)) for line in ran.stdout.splitlines())
    }


def unexplained(there: Result, here: Result) -> list[str]:
    """Facts that differ and are not in `DIFFERENCES`, or are there and do not differ."""
    wrong = (
        [] if list(there.seen) == list(here.seen) else [f"Artemis has {[*there.seen]}; here {[*here.seen]}"]
    )
    for name in there.seen.keys() & here.seen.keys():
        fact, both = (there.case, name), (there.seen[name], here.seen[name])
        differ = both[0] != both[1]
        if differ != (fact in DIFFERENCES) and (differ or fact not in BY_CHANCE):
            wrong.append(f"{name}: Artemis {both[0]}; here {both[1]}; explained: {DIFFERENCES.get(fact)}")
    return wrong


def table(there: Mapping[str, Result], here: Mapping[str, Result]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield f"| case | what | Artemis {VERSION} | here | why they differ |"
    yield "|---|---|---|---|---|"
    for case, result in there.items():
        for kind in ("seen", "notes"):
            values: Mapping[str, Any] = getattr(result, kind)
            others: Mapping[str, Any] = getattr(here[case], kind)
            for name in dict.fromkeys((*values, *others)):
                cells = [case, name, _written(values.get(name)), _written(others.get(name))]
                why = DIFFERENCES.get((case, name), "") if kind == "seen" else "(shown, not compared)"
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, why)) + " |"


def _written(value: Any) -> str:
    """A value as a reader wants it: lists of numbers as ranges."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, list):
        return str(value)
    if not value:
        return "none"
    if not all(isinstance(item, int) for item in value):
        return ", ".join(map(str, value))
    return " ".join(_ranges(value))


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    for _, numbered in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in numbered]
        yield f"{run[0]} … {run[-1]}" if len(run) > 2 else " ".join(map(str, run))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(sys.stderr):
        there = artemis(Path(directory))
        here = {}
        for case in ours.CASES:
            (Path(directory) / case).mkdir()
            here[case] = ours.run(case, Path(directory) / case)
    print(*table(there, here), sep="\n")


if __name__ == "__main__":
    main()
