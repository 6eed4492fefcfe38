"""Microseconds a message of a bridge's pump with and without a transformer, and messages a second through one
that waits, in interleaved turns.

    python -m benchmarks.transformers [--messages 200000] [--waiting 1000] [--turns 5]

Batches of 1,000 stored messages of 1 KiB with 64 keys pass a pump between a source that has them in memory
and a target that answers at once: the time is the pump's and the transformer's, of the processor, all
threads; where the transformer waits it is the time that passes. Every turn runs every case once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.messages.batch import Batch
from bridge.messages.block import Block, encode_message, pack
from bridge.messages.message import Message as StoredMessage
from bridge.relay.backoff import Backoff
from bridge.relay.ports import Bounds, Opened, Receipt, Stream, StreamState
from bridge.relay.pump import Pump
from bridge.relay.session import Session
from bridge.relay.stays import Remembered
from bridge.relay.transforming import Transforming
from bridge.relay.window import Window
from bridge.runtime.clock import SystemClock
from bridge.transformers import Message
from bridge.transformers.loading import Call
from bridge.transformers.parts import TransformerOptions
from dedup.verdict import Verdict

#: Messages of a batch, and bytes of a body: a batch is not larger than `producer-window-size`.
COUNT: Final = 1000
BODY: Final = bytes(1000)
KEYS: Final = 64
#: Time that a transformer waits as for a service, and the numbers of calls at a time.
WAIT_MS: Final = 5
CALLERS: Final = (1, 4, 8)
_STREAM: Final = "journal:i:orders:0"


class _Source:
    """Hands out the same block again and again, at ascending positions."""

    def __init__(self, block: Block, batches: int, stop: asyncio.Event) -> None:
        self._block, self._batches, self._stop = block, batches, stop
        self._read = self._settled = 0

    async def streams(self) -> Sequence[Stream]:
        return [Stream(_STREAM, "orders", "orders")]

    async def remembered(self) -> Mapping[str, Remembered]:
        return {}

    async def bounds(self) -> Mapping[str, Bounds]:
        return {}

    async def begin(self, stream: str, at: int, store: str) -> None:
        raise NotImplementedError

    async def open(self, resume: Mapping[str, StreamState], store: str) -> None:
        del resume, store

    async def read(self) -> Sequence[Batch]:
        if self._read == self._batches:
            await asyncio.Event().wait()
        first = self._read * COUNT
        self._read += 1
        runs = ((first, first + COUNT - 1),)
        return [Batch(_STREAM, first, first + COUNT, runs, self._block.stamped(_STREAM, runs))]

    def back_off(self, streams: Collection[str]) -> None:
        del streams

    async def settled(self, batch: Batch, receipt: Receipt) -> None:
        del receipt
        if batch.upto == self._batches * COUNT:
            self._stop.set()

    async def close(self) -> None:
        pass


class _Target:
    """Takes everything at once."""

    async def open(self, streams: Sequence[Stream]) -> Opened:
        return Opened("store", {one.identity: StreamState(0) for one in streams})

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        return [Receipt(one.stream, Verdict.STORED, one.upto) for one in batches]

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Case:
    """A transformer, None: none is called; and the calls at a time."""

    call: Call | None
    callers: int = 1


async def _pumped(block: Block, messages: int, case: Case) -> tuple[float, float]:
    """Seconds of the processor, and seconds that passed."""
    call = case.call
    options = TransformerOptions("x:y", callers=case.callers)
    stop = asyncio.Event()
    source: Any = _Source(block, messages // COUNT, stop)
    session = Session(
        bridge="b",
        source=source,
        target=_Target(),
        clock=SystemClock(),
        window=Window(10 * 1024 * 1024),
        backoff=Backoff(),
        dead_letters=None,
        transforming=None if call is None else Transforming("b", lambda: call, options),
    )
    await session.connect()
    began = time.process_time(), time.monotonic()
    await Pump(session).run(stop, 1000)
    return time.process_time() - began[0], time.monotonic() - began[1]


def _unchanged(message: Message) -> Message:
    return message


def _with_header(message: Message) -> Message:
    message.set_header("seen", b"1")
    return message


def _dropped(_message: Message) -> None:
    return None


def _waiting(message: Message) -> Message:
    time.sleep(WAIT_MS / 1000)
    return message


CASES: Final[Mapping[str, Case]] = {
    "off": Case(None),
    "unchanged": Case(_unchanged),
    "unchanged, 4 calls at a time": Case(_unchanged, 4),
    "a header set": Case(_with_header),
    "dropped": Case(_dropped),
}
WAITING: Final[Mapping[str, Case]] = {
    f"waits {WAIT_MS} ms, {callers} calls at a time": Case(_waiting, callers) for callers in CALLERS
}


def _whole_batches(text: str) -> int:
    """A number of messages: some whole batches."""
    count = int(text)
    if count < COUNT or count % COUNT:
        raise argparse.ArgumentTypeError(f"must be a multiple of {COUNT}; found {text}")
    return count


def main() -> None:
    """Print the median and the range of each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=_whole_batches, default=200_000)
    parser.add_argument(
        "--waiting", type=_whole_batches, default=COUNT, help="messages through one that waits"
    )
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    keys = [b"key %02d" % (index % KEYS) for index in range(COUNT)]
    block = pack([encode_message(StoredMessage(BODY, key, (("a", b"1"),), 1)) for key in keys])
    found: dict[str, list[float]] = {name: [] for name in (*CASES, *WAITING)}
    for _ in range(arguments.turns):
        for name, case in CASES.items():
            processor_s, _ = asyncio.run(_pumped(block, arguments.messages, case))
            found[name].append(processor_s / arguments.messages * 1e6)
        for name, case in WAITING.items():
            _, passed_s = asyncio.run(_pumped(block, arguments.waiting, case))
            found[name].append(arguments.waiting / passed_s)
    for name, figures in found.items():
        median, unit = statistics.median(figures), "messages/s" if name in WAITING else "us a message"
        print(f"{name:30} {median:9.3f} {unit} ({min(figures):.3f} to {max(figures):.3f})")


if __name__ == "__main__":
    main()
