"""The same cases on a real Artemis and here, compared: which facts differ, and why.

``python -m tests.artemis.side_by_side`` prints both as a Markdown table; with the argument ``clusters`` the
cases of clusters, with ``migrated`` those of a broker.xml and what `core-bridge migrate` makes of it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.artemis import clusters, migrated, ours
from tests.artemis.ours import Result
from tests.filters.artemis import VERSION, compiled

HERE: Final = Path(__file__).parent
#: Longest time of all cases of a program on Artemis, in seconds; they take some 30, of clusters some 300.
RUN_TIMEOUT_S: Final = 1500
#: Of the process with the brokers.
HEAP: Final = "-Xmx256m"

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

_LACKS: Final = (
    "Artemis makes a queue for a typed message where the message is; here it goes where the queue is"
)
_OFF: Final = (
    "In Artemis OFF lets a MULTICAST name take turns while no reader is here, and OFF_WITH_REDISTRIBUTION "
    "always; here what has a queue here stays here"
)
_HEAD: Final = (
    "In Artemis the first message that no remote queue takes blocks all behind it; here it is passed over"
)
_DEAD: Final = (
    "Artemis redistributes into the link of a dead node as well; here only nodes that are reached take part"
)
_GONE: Final = (
    "In Artemis messages that cross are for a binding's number, and are dropped where it is gone; here they "
    "are for a name: it takes them, or another node that has it, or they become dead letters"
)
_PARKED: Final = (
    "Artemis moves what a third node has parked to the heir's link, where most or all of it is lost; here "
    "the heir answers for the leaver, and takes its streams over"
)
_CONSUMED: Final = "Artemis carries no ID of a consumed message to the heir; a drain carries all"

#: The same for clusters.
CLUSTER_DIFFERENCES: Final[Mapping[tuple[str, str], str]] = {
    ("on-demand", "ANYCAST, typed message, the queue at n1 alone: shares"): _LACKS,
    ("off", "ANYCAST, the queue at n1 alone: shares"): (
        "Artemis drops them without an error; here what clients send is kept at the node that they send it to"
    ),
    ("off", "MULTICAST name at both, no reader: shares"): _OFF,
    ("off-with-redistribution", "MULTICAST name at both, readers at both: shares"): _OFF,
    ("redistribution-filter", "the queue at n1 takes every other message: its reader gets"): _HEAD,
    ("redistribution-filter", "the queue at n1 takes every other message: left at n0"): _HEAD,
    ("redistribution-killed-node", "the reader at n0 leaves: the live one at n2 gets"): _DEAD,
    ("redistribution-killed-node", "parked at n0 for the dead n1"): _DEAD,
    ("clean-stop", "of those sent after the stop still there at n0"): (
        "In Artemis they vanish without an error; here an address keeps what no queue takes, for one that is "
        "made later"
    ),
    ("deleted-queue", "lost"): _GONE,
    ("remade-queue", "lost"): _GONE,
    ("deleted-queue-elsewhere", "lost"): _GONE,
    ("scale-down-parked", "lost"): _PARKED,
    ("scale-down-parked-heir-lacks", "lost"): _PARKED,
    ("scale-down-ids", "IDs of consumed messages, sent again to the heir"): _CONSUMED,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A program of cases on Artemis, the same cases here, and why some differ."""

    program: Path
    cases: Sequence[str]
    #: Runs a case here, its files in a directory.
    run: Callable[[str, Path], Result]
    #: By case and the name of a fact.
    differences: Mapping[tuple[str, str], str]
    #: Of these, the facts that chance decides on Artemis: they may be equal in a run.
    by_chance: frozenset[tuple[str, str]] = frozenset()
    #: Of the Java that runs the program.
    options: Sequence[str] = ()


SINGLE: Final = Comparison(
    HERE / "Cases.java",
    list(ours.CASES),
    ours.run,
    DIFFERENCES,
    frozenset({("parallel-ids", "each ID once")}),
)
CLUSTERS: Final = Comparison(
    HERE / "ClusterCases.java",
    list(clusters.CASES),
    clusters.run,
    CLUSTER_DIFFERENCES,
    frozenset({("scale-down-parked", "lost")}),
)
MIGRATED: Final = Comparison(
    HERE / "MigratedCases.java",
    list(migrated.CASES),
    migrated.run,
    {},
    options=(f"-Doriginals={migrated.ORIGINALS}",),
)
#: By the argument that chooses it.
ALL: Final[Mapping[str, Comparison]] = {"single": SINGLE, "clusters": CLUSTERS, "migrated": MIGRATED}


def artemis(comparison: Comparison, directory: Path, *cases: str) -> dict[str, Result]:
    """What real brokers do, by case: these, or all.

    Raises:
        Missing: no Java, Maven or network.
        AssertionError: a case could not be run.
    """
    classes, data = directory / "classes", directory / "data"
    classes.mkdir(parents=True)
    java, *rest = compiled(comparison.program, classes)
    command = [java, HEAP, *comparison.options, *rest, str(data), *cases]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return {
        result.case: result for result in (Result(**json.loads(line)) for line in ran.stdout.splitlines())
    }


def unexplained(comparison: Comparison, there: Result, here: Result) -> list[str]:
    """Facts that differ without a reason in the comparison, or have one and do not differ."""
    wrong = (
        [] if list(there.seen) == list(here.seen) else [f"Artemis has {[*there.seen]}; here {[*here.seen]}"]
    )
    for name in there.seen.keys() & here.seen.keys():
        fact, both = (there.case, name), (there.seen[name], here.seen[name])
        why, differ = comparison.differences.get(fact), both[0] != both[1]
        if differ != (why is not None) and (differ or fact not in comparison.by_chance):
            wrong.append(f"{name}: Artemis {both[0]}; here {both[1]}; explained: {why}")
    return wrong


def table(comparison: Comparison, there: Mapping[str, Result], here: Mapping[str, Result]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield f"| case | what | Artemis {VERSION} | here | why they differ |"
    yield "|---|---|---|---|---|"
    for case, result in there.items():
        for kind in ("seen", "notes"):
            values: Mapping[str, Any] = getattr(result, kind)
            others: Mapping[str, Any] = getattr(here[case], kind)
            for name in dict.fromkeys((*values, *others)):
                cells = [case, name, _written(values.get(name)), _written(others.get(name))]
                why = (
                    comparison.differences.get((case, name), "")
                    if kind == "seen"
                    else "(shown, not compared)"
                )
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


def main(names: Sequence[str]) -> None:
    comparison = ALL[names[0] if names else "single"]
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(sys.stderr):
        there = artemis(comparison, Path(directory))
        here = {}
        for case in comparison.cases:
            (Path(directory) / case).mkdir()
            here[case] = comparison.run(case, Path(directory) / case)
    print(*table(comparison, there, here), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
