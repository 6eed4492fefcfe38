"""A process that fills its disk, reads from it, makes room, and says on stdout what happened.

Usage: full_disk_driver.py DIRECTORY LIMIT. LIMIT is the largest file in bytes (RLIMIT_FSIZE), lifted to make
room; with 0 the disk is really full, and the file `filler` beside the directory is what is deleted.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from bridge.errors import DiskFull
from bridge.journal.journal import Journal
from tests.integration.journal.helpers import (
    KIB,
    QUEUE,
    acknowledgement,
    browsed,
    lease,
    opened,
    options,
    send,
)

BODY = "." * 150 * KIB
CALL_TIMEOUT_MS = 700


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def fill(journal: Journal, stored: list[str]) -> DiskFull:
    """Send until there is no room; the error that a client gets then."""
    number = 0
    while True:
        names = [f"{place}" for place in range(number, number + 4)]
        number += 4
        answers = await asyncio.gather(
            *(send(journal, name + BODY, name) for name in names), return_exceptions=True
        )
        stored += [
            name for name, answer in zip(names, answers, strict=True) if not isinstance(answer, BaseException)
        ]
        for answer in answers:
            if isinstance(answer, DiskFull):
                return answer
            assert not isinstance(answer, BaseException), answer


async def read_half(journal: Journal, count: int) -> list[str]:
    """A reader that goes on while the disk is full."""
    found: list[str] = []
    while len(found) < count // 2:
        page = await lease(journal, most=5)
        found += [(delivered.message.whole or b"").decode().rstrip(".") for delivered in page.messages]
        await journal.acknowledge(acknowledgement(page))
    return found


async def until_stored(journal: Journal, name: str) -> None:
    while True:
        try:
            await send(journal, name, name)
        except DiskFull:
            continue
        return


async def main(directory: Path, limit: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    async with opened(options(directory, call_timeout_ms=CALL_TIMEOUT_MS)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        stored: list[str] = []
        error = await fill(journal, stored)
        say(stored=len(stored), detail=error.detail, code=error.code, disk_full=journal.disk_full)
        browsable = len(await browsed(journal))
        read = await read_half(journal, browsable)
        say(
            browsed=browsable,
            in_order=read == stored[: len(read)],
            read=len(read),
            disk_full=journal.disk_full,
        )
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        (directory.parent / "filler").unlink(missing_ok=True)
        started = time.monotonic()
        await until_stored(journal, "later")
        say(seconds=time.monotonic() - started, disk_full=journal.disk_full)
    async with opened(directory) as journal:
        left = [body.rstrip(".") for body in await browsed(journal)]
        say(
            kept=[*stored, "later"][-len(left) :] == left and len(left) > len(stored) - len(read),
            left=len(left),
        )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
