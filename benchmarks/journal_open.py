"""Opening a small and a large journal: time and bytes read, which must not depend on what is stored.

Run: ``python -m benchmarks.journal_open [--megabytes 400]``.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bridge.journal.journal import Journal
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message

MIB = 1 << 20
#: Messages of 1 KiB in a transaction: one block of about 1 MiB.
TRANSACTION = 1000
OPENINGS = 9


def bytes_read() -> int:
    """The bytes that this process has asked the system to read, from memory or disk."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


async def fill(directory: Path, megabytes: int, ids: int) -> None:
    journal = await Journal.open(JournalOptions(directory, delivery_log=False))
    await journal.create_queue("orders", "readers", "earliest")
    body = Message(bytes(1000))
    for _ in range(megabytes):
        await journal.commit(Transaction([Sent.of("orders", body)] * TRANSACTION))
    for first in range(0, ids, TRANSACTION):
        named = [Sent.of("named", body, b"id-%013d" % place) for place in range(first, first + TRANSACTION)]
        await journal.commit(Transaction(named))
    await journal.close()


async def measure(directory: Path, what: str) -> None:
    seconds, read = [], 0
    for _ in range(OPENINGS):
        before, started = bytes_read(), time.perf_counter()
        journal = await Journal.open(JournalOptions(directory, delivery_log=False))
        seconds.append(time.perf_counter() - started)
        read = bytes_read() - before
        await journal.close()
    size = (directory / "journal.sqlite").stat().st_size
    seconds.sort()
    print(
        f"{what}: {size / MIB:,.0f} MiB on disk, opened in {seconds[OPENINGS // 2] * 1000:.1f} ms"
        f" (most {seconds[-1] * 1000:.1f}), {read / MIB:.2f} MiB read",
        flush=True,
    )


async def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        for what, size, ids in (
            ("small", 4, 0),
            ("large", megabytes, 0),
            ("small with 20,000 IDs", 4, 20_000),
        ):
            directory = Path(name) / what
            await fill(directory, size, ids)
            await measure(directory, what)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    asyncio.run(main(parser.parse_args().megabytes))
