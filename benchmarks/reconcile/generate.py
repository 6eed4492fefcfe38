"""Delivery logs of any size with known faults, written quickly: lines from a template."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Messages a line; every tenth line has a position without one in its middle.
PER_LINE: Final = 1_000
#: Streams of the log. One of them has half of all lines.
STREAMS: Final = 32
#: A node rolls its files at this size (settings: roll-size).
ROLL_BYTES: Final = 64 * 2**20
#: Lines of the receiver that lack one message, lines it has twice, lines that one side's log lacks.
LOST, DOUBLED, GAPS = 24, 85, 6
#: Messages whose ID had been accepted before, and the farthest that the first copy is away.
REPEATED: Final = 100
FARTHEST: Final = 1_000_000
SEED: Final = 20130101
BEGAN_MS: Final = 1_700_000_000_000

_TEMPLATE: Final = (
    '{{"v":1,"side":"{side}","node":"{node}","node-id":"{node}-0f3c","bridge":"orders-to-hub","lane":0,'
    '"stream":"{stream}","address":"orders","target":"hub","store":"hub-0f3c:1"'
)


@dataclass(frozen=True, slots=True)
class Known:
    """The findings that a reconciliation must have: sums over all flows."""

    lines: int
    bytes: int
    sent: int
    received: int
    lost: int
    doubled: int
    unknown: int
    #: id-cache-size-needed.
    needed: int


@dataclass(slots=True)
class _Faults:
    """Numbers of the lines that have one."""

    lost: set[int]
    doubled: set[int]
    not_sent: set[int]
    not_received: set[int]
    #: By line: how many messages before its last one the same ID was accepted first.
    repeated: dict[int, int]

    @classmethod
    def choose(cls, lines: int, *, ids: bool) -> _Faults:
        """Not among the first and the last lines of a stream: what is missing there is no gap."""
        rng = random.Random(SEED)
        inner = range(2 * STREAMS, lines - 2 * STREAMS)
        if ids:
            chosen = rng.sample(inner, min(REPEATED, len(inner)))
            return cls(set(), set(), set(), set(), {number: _distance(rng, number) for number in chosen})
        chosen = rng.sample(inner, LOST + DOUBLED + 2 * GAPS)
        take = iter(chosen)
        lost, doubled, not_sent, not_received = (
            {next(take) for _ in range(number)} for number in (LOST, DOUBLED, GAPS, GAPS)
        )
        return cls(lost, doubled, not_sent, not_received, {})


def _distance(rng: random.Random, number: int) -> int:
    """From the last message of a line back to one that is the last of no line: it repeats no ID itself."""
    back = rng.randrange(min(number, FARTHEST // PER_LINE))
    return back * PER_LINE + rng.randrange(1, PER_LINE)


def write(directory: Path, lines: int, *, ids: bool = False) -> Known:
    """Write both sides' logs of `lines` lines each into `directory`.

    Args:
        directory: made; must not be there.
        lines: of a side, at least 500.
        ids: streams from Kafka where every message has its producer's ID, and some IDs come twice;
            else streams from a journal, with messages lost, doubled and unknown.
    """
    directory.mkdir(parents=True)
    faults = _Faults.choose(lines, ids=ids)
    gaps = faults.not_sent | faults.not_received
    size = 0
    for side, node in (("sent", "edge"), ("received", "hub")):
        size += _write_files(directory, node, _side(side, node, lines, faults, ids=ids))
    return Known(
        lines=2 * lines - len(gaps) + len(faults.doubled),
        bytes=size,
        sent=(lines - len(faults.not_sent)) * PER_LINE,
        received=(lines - len(faults.not_received)) * PER_LINE - len(faults.lost),
        lost=len(faults.lost),
        doubled=len(faults.doubled) * PER_LINE + len(faults.repeated),
        unknown=sum(PER_LINE + _has_hole(number) for number in gaps),
        needed=max(faults.repeated.values(), default=0),
    )


def _has_hole(number: int) -> bool:
    return number % 10 == 0


def _stream(number: int) -> int:
    """The stream of a line: every second line belongs to the hot stream."""
    return 0 if number % 2 else 1 + number // 2 % (STREAMS - 1)


def _side(side: str, node: str, lines: int, faults: _Faults, *, ids: bool) -> Iterator[str]:
    kind = "kafka:c1:t{}:0" if ids else "journal:{:x}:orders:0"
    heads = [_TEMPLATE.format(side=side, node=node, stream=kind.format(n)) for n in range(STREAMS)]
    positions: dict[int, int] = defaultdict(int)
    missing = faults.not_sent if side == "sent" else faults.not_received
    for number in range(lines):
        stream = _stream(number)
        from_ = positions[stream]
        upto = positions[stream] = from_ + PER_LINE + _has_hole(number)
        if number in missing:
            continue
        is_short = side == "received" and number in faults.lost
        runs, count = _runs(from_, upto, has_hole=_has_hole(number), is_short=is_short)
        pairs = _ids(number, from_, upto, faults) if ids else ""
        event_ms = BEGAN_MS + number * 10
        line = (
            f'{heads[stream]},"from":{from_},"upto":{upto},"runs":{runs},"refused":[],"count":{count},'
            f'"ids":[{pairs}],"events":[{event_ms},{event_ms + 9}],"committed":{event_ms + 20},'
            '"duplicates":0,"recovered":false}\n'
        )
        yield line
        if side == "received" and number in faults.doubled:
            yield line.replace(f'"committed":{event_ms + 20}', f'"committed":{event_ms + 21}')


def _runs(from_: int, upto: int, *, has_hole: bool, is_short: bool) -> tuple[str, int]:
    """Ranges of a line as JSON, and the number of their messages."""
    middle = from_ + PER_LINE // 2
    if has_hole and is_short:
        return f"[[{from_},{middle - 1}],[{middle + 2},{upto - 1}]]", PER_LINE - 1
    if has_hole or is_short:
        return f"[[{from_},{middle - 1}],[{middle + 1},{upto - 1}]]", upto - from_ - 1
    return f"[[{from_},{upto - 1}]]", PER_LINE


def _ids(number: int, from_: int, upto: int, faults: _Faults) -> str:
    """The line's IDs as JSON: ``order-`` and the number of the message."""
    first = number * PER_LINE
    positions = [*range(from_, upto)]
    if _has_hole(number):
        del positions[PER_LINE // 2]
    values = [*range(first, first + PER_LINE)]
    if number in faults.repeated:
        values[-1] -= faults.repeated[number]
    return ",".join([f'[{p},"order-{value:012}"]' for p, value in zip(positions, values, strict=True)])


def _write_files(directory: Path, node: str, lines: Iterator[str]) -> int:
    """Write one node's files; returns their size."""
    size, number, more = 0, 0, True
    while more:
        number += 1
        more = False
        with (directory / f"{node}-20231114T221320-{number:06}.jsonl").open("w", buffering=2**20) as file:
            written = 0
            for line in lines:
                file.write(line)
                written += len(line)
                if written >= ROLL_BYTES:
                    more = True
                    break
        size += written
    return size
