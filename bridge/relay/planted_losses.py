"""For tests only: a target that loses messages for good, as no target should, and logs what it did store.

``CORE_BRIDGE_TEST_LOSE=orders:3,7-9;invoices:0`` makes the targets of this process leave out these positions
of every stream that is delivered to the address or topic, and confirm the batch all the same. The loss then
shows in the delivery log alone: `core-bridge reconcile` finds it, `core-bridge replay` mends it; what a plan
sends again is not lost. Unset, it costs one comparison a batch. Never set it where messages matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.messages.stream_names import planned_stream

VARIABLE: Final = "CORE_BRIDGE_TEST_LOSE"
_RUN: Final = re.compile(r"(?P<first>[0-9]+)(-(?P<last>[0-9]+))?")


def read(value: str) -> Mapping[str, Runs]:
    """Positions to lose, by address. Raises: SystemExit: the value cannot be read."""
    found: dict[str, Runs] = {}
    for part in filter(None, value.split(";")):
        address, _, listed = part.rpartition(":")
        runs = [_RUN.fullmatch(item) for item in listed.split(",")]
        if not address or None in runs:
            raise SystemExit(f"{VARIABLE}: ADDRESS:FIRST-LAST,POSITION;... expected; found {part}")
        pairs = [(int(run["first"]), int(run["last"] or run["first"])) for run in runs if run is not None]
        found[address] = tuple(sorted(pairs))
    return found


_planted: Mapping[str, Runs] = read(os.environ.get(VARIABLE, ""))


def lose(address: str, batch: Batch) -> Batch:
    """The batch as it is stored at `address`: all of it, unless a test wants some of it lost."""
    if not _planted or address not in _planted or batch.block is None:
        return batch
    if planned_stream(batch.stream) is not None:
        return batch
    lost = _planted[address]
    places = list(run_arithmetic.positions(batch.runs))
    dropped = {index for index, place in enumerate(places) if run_arithmetic.index(lost, place) >= 0}
    if not dropped:
        return batch
    kept = [place for index, place in enumerate(places) if index not in dropped]
    block = batch.block.without(dropped)
    return replace(batch, runs=run_arithmetic.join((place, place) for place in kept), block=block)
