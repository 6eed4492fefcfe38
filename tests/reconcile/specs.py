"""Simulated runs: strategies for small ones, and large ones from a seed."""

from __future__ import annotations

import random
from typing import TypeVar

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.reconcile.faults import Fault, FlowSpec, Slot
from tests.reconcile.id_traffic import IDS, IdSpec, Send
from tests.reconcile.log_files import Layout
from tests.reconcile.model import Flow

_Example = TypeVar("_Example")

_STRIKING = [fault for fault in Fault if fault is not Fault.NONE]
#: Most positions of a small slot.
WIDEST = 9

_slots = st.integers(1, WIDEST).flatmap(
    lambda width: st.builds(
        Slot,
        width=st.just(width),
        messages=st.integers(0, 2**width - 1) | st.just(2**width - 1),
        fault=st.sampled_from([Fault.NONE, *_STRIKING]),
        struck=st.integers(1, 2**width - 1),
        cuts=st.lists(st.integers(1, width), max_size=3).map(tuple),
        owner=st.integers(0, 1),
    )
)

#: One bridge's stream. Its name and its lane come from `flow` and the caller.
flows = st.builds(
    FlowSpec,
    flow=st.just(Flow("", "", "")),
    slots=st.lists(_slots, min_size=1, max_size=8).map(tuple),
    start=st.sampled_from([0, 0, 7, 2**50 - 100]),
    gone=st.sampled_from([None] * 8 + ["sent", "received"]),
)

_sends = st.builds(
    Send, id=st.integers(0, len(IDS) - 1), by=st.sampled_from([0, 0, 0, 1, 2]), begins=st.booleans()
)

#: What came to one address. The caller gives it its name.
id_runs = st.builds(
    IdSpec,
    store=st.just(""),
    address=st.just(""),
    sends=st.lists(_sends, max_size=14).map(tuple),
    cache=st.integers(0, 5),
    is_kafka=st.booleans(),
)

layouts = st.builds(
    Layout,
    lines_per_file=st.integers(1, 40),
    open_and_torn=st.booleans(),
    copied=st.integers(0, 4),
    snapshots=st.integers(0, 3),
    moved=st.integers(0, 3),
)


def flow(number: int) -> Flow:
    """Flow `number`: each four differ from each other in bridge, stream, or stream and store.

    None differ in the store alone: what a bridge delivers of a stream to several stores is judged together
    (`tests.reconcile.test_failover`).
    """
    group, kind = divmod(number, 4)
    bridge, store = f"bridge-{group}", f"store-{group}"
    stream, other = (f"journal:{group:x}:orders:0", f"journal:{group:x}:orders:1")
    if group % 2:
        stream, other = f"kafka:c{group:x}:orders:0", f"kafka:c{group:x}:orders:1"
    return (
        Flow(bridge, stream, store),
        Flow(f"{bridge}-too", stream, store),
        Flow(bridge, other, store),
        Flow(bridge, stream.replace("orders", "returns"), f"{store}-restored"),
    )[kind]


def drawn(strategy: st.SearchStrategy[_Example], number: int) -> list[_Example]:
    """`number` examples, to be tried at once: a reconciliation takes seconds, however many flows it has."""
    found: list[_Example] = []

    @settings(max_examples=number, phases=[Phase.generate], database=None)
    @given(strategy)
    def collect(example: _Example) -> None:
        found.append(example)

    collect()
    return found


def large_flow(rng: random.Random, number: int, *, slots: int, width: int, faults: float) -> FlowSpec:
    """A flow of many slots, of which the share `faults` has one."""
    made = tuple(_large_slot(rng, rng.randint(1, width), faults) for _ in range(slots))
    return FlowSpec(flow(number), made, start=rng.randrange(10_000), lane=number % 4)


def _large_slot(rng: random.Random, width: int, faults: float) -> Slot:
    full = 2**width - 1
    return Slot(
        width=width,
        messages=full if rng.random() < 0.7 else rng.getrandbits(width),
        fault=rng.choice(_STRIKING) if rng.random() < faults else Fault.NONE,
        struck=1 << rng.randrange(width) | (rng.getrandbits(width) if rng.random() < 0.3 else 0),
        cuts=tuple(rng.randrange(1, width + 1) for _ in range(rng.choice([0, 0, 1, 3]))),
        owner=0 if rng.random() < 0.9 else 1,
    )
