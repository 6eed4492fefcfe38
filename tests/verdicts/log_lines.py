"""The delivery-log files of the histories of `tests.verdicts.world`: copied, damaged, taken away."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge import delivery_log
from bridge.delivery_log import CLOSED
from bridge.messages import positions as run_arithmetic
from tests.verdicts.failover import FailoverWorld
from tests.verdicts.messages import Line, Shape
from tests.verdicts.world import World

#: When the first message of a history was stored, ms since the epoch; a line later, a millisecond later.
BEGAN_MS: Final = 1_700_000_000_000
_NAME: Final = "{node}-202311{day:02}T221320-{number:06}" + CLOSED


@dataclass(slots=True)
class Trouble:
    """What became of one history's files."""

    #: Lines that no file has whole, by `Line.order`.
    missing: set[int] = field(default_factory=set)

    def is_visible(self, line: Line) -> bool:
        """Whether a file has it."""
        return line.order not in self.missing


def text(shape: Shape, line: Line) -> bytes:
    """The line as the product writes it."""
    node = _node(shape, line)
    at = BEGAN_MS + line.order
    session = delivery_log.Session(f"{shape.number}{line.session}", _after(shape, line))
    writer = delivery_log.LineWriter(
        node=node, node_id=f"id-of-{node}", bridge=line.bridge, lane=0, target="hub",
        store=f"{line.hub}{shape.store}", session=session if line.session else None,
    )  # fmt: skip
    return delivery_log.Line(
        side=line.side, writer=writer, stream=line.stream, address=shape.address, from_=line.from_,
        upto=line.upto,
        runs=run_arithmetic.join((p, p) for p in line.messages), refused=line.refused, ids=line.ids,
        events=(at, at) if line.messages else (0, 0), committed=at + 5, duplicates=line.duplicates,
        recovered=line.recovered, verdict=line.verdict, known=run_arithmetic.join((p, p) for p in line.known),
        unchecked=line.unchecked, number=line.number,
    ).encode()  # fmt: skip


def _node(shape: Shape, line: Line) -> str:
    """The node that writes the line."""
    return shape.sender if line.side == "sent" else f"{line.hub}{shape.receiver}"


def _after(shape: Shape, line: Line) -> tuple[str, int] | None:
    return None if line.after is None else (f"{shape.number}{line.after[0]}", line.after[1])


def write(
    worlds: Iterable[World | FailoverWorld], directory: Path, rng: random.Random, *, troubled: float
) -> dict[int, Trouble]:
    """The files of all histories, below `directory`; by history what is missing.

    Args:
        worlds: each with a number of its own.
        directory: gets directories; a target that was restored writes its log to another disk.
        rng: by which files are cut, copied, damaged and taken away.
        troubled: share of the histories of which something is missing.
    """
    troubles = {}
    for world in worlds:
        trouble = troubles[world.shape.number] = Trouble()
        is_troubled = rng.random() < troubled
        numbers: dict[str, int] = defaultdict(int)
        logs: dict[tuple[int, str], list[Line]] = defaultdict(list)
        for line in world.lines:
            node = _node(world.shape, line)
            is_target = node != world.shape.sender or world.shape.is_kafka_target
            logs[line.life if is_target else 0, node].append(line)
        for (life, node), lines in sorted(logs.items()):
            place = directory / f"disk-{life}"
            place.mkdir(parents=True, exist_ok=True)
            for part in _cut(rng, lines):
                numbers[node] += 1
                name = _NAME.format(node=node, day=1 + life % 28, number=numbers[node])
                _write_file(world.shape, part, place / name, trouble, rng if is_troubled else None)
                if rng.random() < 0.1 and (place / name).exists():
                    copies = directory / "copies"
                    copies.mkdir(exist_ok=True)
                    (copies / name).write_bytes((place / name).read_bytes())
    return troubles


def _cut(rng: random.Random, lines: Sequence[Line]) -> Iterable[Sequence[Line]]:
    """As files hold them: so many lines, and now and then the last ones of the file before once more."""
    size = rng.randint(2, 12)
    for start in range(0, len(lines), size):
        again = rng.choice([0, 0, 0, 1, 2]) if start else 0
        yield lines[max(start - again, 0) : start + size]


def _write_file(
    shape: Shape, lines: Sequence[Line], path: Path, trouble: Trouble, rng: random.Random | None
) -> None:
    """A file, or what is left of it; with `rng` something may happen to it."""
    if rng is not None and rng.random() < 0.2:
        trouble.missing |= {line.order for line in lines}
        return
    texts = []
    for line in lines:
        whole = text(shape, line)
        if rng is not None and rng.random() < 0.05:
            trouble.missing.add(line.order)
            whole = rng.choice([whole[: len(whole) // 2], whole[:9] + b"\xff" + whole[10:], b"\0" * 40])
        else:
            trouble.missing.discard(line.order)
        texts.append(whole)
    path.write_bytes(b"\n".join((*texts, b"")))
