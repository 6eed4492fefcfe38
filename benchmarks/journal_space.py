"""Trimming and shrinking a large journal under load: how long commits wait, how soon the file is small.

Run: ``python -m benchmarks.journal_space [--megabytes 1000]``.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bridge.journal.journal import Journal
from bridge.journal.values.options import AddressPolicy, JournalOptions
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message

MIB = 1 << 20
TRANSACTION = 1000
#: Every so many megabytes something stays: pages have to be moved then, not only cut off.
KEPT_EVERY = 20


class Sender:
    """A client that sends one message after the other, and the time that each took."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.milliseconds: list[float] = []
        self.stopped = False

    async def run(self) -> None:
        message = [Sent.of("others", Message(bytes(1000)))]
        while not self.stopped:
            started = time.perf_counter()
            await self._journal.commit(Transaction(message, plain=True))
            self.milliseconds.append((time.perf_counter() - started) * 1000)
            await asyncio.sleep(0.002)

    def report(self, what: str) -> None:
        taken = sorted(self.milliseconds)
        self.milliseconds = []
        p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
        print(
            f"{what}: {len(taken)} sends, p50 {p50:.1f} p99 {p99:.1f}, longest {taken[-1]:.1f} ms [<= 100]",
            flush=True,
        )


async def main(megabytes: int) -> None:
    policy = AddressPolicy(max_size_bytes=1 << 40)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        path = Path(name) / "journal.sqlite"
        journal = await Journal.open(JournalOptions(Path(name), policy=lambda _: policy, delivery_log=False))
        await journal.create_queue("orders", "readers", "earliest")
        await fill(journal, megabytes)
        print(f"filled: {path.stat().st_size / MIB:,.0f} MiB")
        sender = Sender(journal)
        sending = asyncio.create_task(sender.run())
        await asyncio.sleep(2)
        sender.report("before")
        started = time.perf_counter()
        await journal.delete_address("orders")
        live = (await journal.address("kept")).bytes
        while path.stat().st_size > 1.2 * live + 64 * MIB:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - started
        sender.report("trimming and shrinking")
        size = path.stat().st_size / MIB
        print(f"{size:,.0f} MiB for {live / MIB:,.0f} MiB of data, {seconds:.1f} s later [aim <= 60]")
        sender.stopped = True
        await sending
        await journal.close()


async def fill(journal: Journal, megabytes: int) -> None:
    message = Message(bytes(1000))
    for number in range(megabytes):
        address = "kept" if number % KEPT_EVERY == 0 else "orders"
        await journal.commit(Transaction([Sent.of(address, message)] * TRANSACTION))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    asyncio.run(main(parser.parse_args().megabytes))
