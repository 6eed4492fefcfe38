"""Random damage to a journal's files, and what has to hold afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.errors import JournalDamaged, JournalFailed, JournalUnavailable
from bridge.journal.journal import Journal
from bridge.journal.sqlite import repair
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.sqlite.identity_file import forget_reached
from bridge.journal.sqlite.log_file import LogFile
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.store import Acknowledgement
from bridge.journal.values.stored_block import PAGE_BYTES
from tests.integration.journal.helpers import (
    PATIENCE_S,
    QUEUE,
    acknowledgement,
    bodies,
    lease,
    opened,
    options,
    send,
    send_all,
)

WAL: Final = f"{FILE_NAME}-wal"
SHM: Final = f"{FILE_NAME}-shm"
MESSAGES: Final = 120
#: Answers that say that something is wrong, each in its own words.
NAMED: Final = (JournalDamaged, JournalUnavailable, JournalFailed)


@dataclass
class Original:
    """A killed node's directory, and what it holds."""

    directory: Path
    #: All that was sent, and what the reader's queue still holds, in order.
    sent: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


async def make_original(directory: Path, rng: random.Random) -> Original:
    """A journal whose messages have one to three pages each, some acknowledged, some only in the log."""
    original = Original(directory / "original")
    policy = AddressPolicy(id_cache_size=1000)
    async with opened(options(directory / "running", policy)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for part in range(4):
            texts = [
                f"{part}-{place}." + "." * rng.choice([10, 500, 5000, 20_000, 40_000])
                for place in range(MESSAGES // 4)
            ]
            await send_all(journal, texts, [text.partition(".")[0] for text in texts])
            original.sent += texts
            original.waiting += texts
            page = await lease(journal, most=rng.randint(1, 10))
            await journal.acknowledge(acknowledgement(page))
            read = bodies(page.messages)
            assert original.waiting[: len(read)] == read
            del original.waiting[: len(read)]
            if part == 2:
                journal._writer._space.checkpoint()
        shutil.copytree(
            directory / "running", original.directory, ignore=shutil.ignore_patterns("*.reserve", "*.lock")
        )
    log = LogFile(original.directory / FILE_NAME, PAGE_BYTES)
    os.truncate(original.directory / WAL, log.used())
    return original


def overwrite_pages(directory: Path, rng: random.Random) -> str:
    pages = (directory / FILE_NAME).stat().st_size // PAGE_BYTES
    if not pages:
        return "nothing: the file is empty"
    some = [rng.randrange(pages) for _ in range(rng.randint(1, 4))]
    kind = rng.choice(["noise", "zeros", "noise in 4 KiB", "noise in 100 bytes", "another page"])
    with (directory / FILE_NAME).open("r+b") as file:
        for page in some:
            at, size = page * PAGE_BYTES, PAGE_BYTES
            if kind == "noise in 4 KiB":
                at, size = at + 4096 * rng.randrange(4), 4096
            elif kind == "noise in 100 bytes":
                at, size = at + rng.randrange(PAGE_BYTES - 100), 100
            data = bytes(size) if kind == "zeros" else rng.randbytes(size)
            if kind == "another page":
                file.seek(rng.randrange(pages) * PAGE_BYTES)
                data = file.read(PAGE_BYTES)
            file.seek(at)
            file.write(data)
    return f"{kind}: pages {some} of {pages}"


def flip_bits(directory: Path, rng: random.Random) -> str:
    path = directory / FILE_NAME
    if not path.stat().st_size:
        return "nothing: the file is empty"
    places = [rng.randrange(path.stat().st_size) for _ in range(rng.randint(1, 20))]
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ (1 << rng.randrange(8))]))
    return f"bits at {places}"


def cut_off(directory: Path, rng: random.Random) -> str:
    path = directory / FILE_NAME
    size = rng.choice([0, 50, rng.randrange(path.stat().st_size + 1)])
    os.truncate(path, size)
    return f"cut to {size}"


def harm_the_log(directory: Path, rng: random.Random) -> str:
    path = directory / WAL
    used = LogFile(directory / FILE_NAME, PAGE_BYTES).used()
    if not used:
        return "nothing: the log is gone"
    kind = rng.choice(["removed", "emptied", "garbled", "cut"])
    if kind == "removed":
        path.unlink()
    elif kind == "emptied":
        path.write_bytes(b"")
    elif kind == "cut":
        os.truncate(path, rng.randrange(used))
    else:
        at = rng.choice([0, rng.randrange(used)])
        with path.open("r+b") as file:
            file.seek(at)
            file.write(rng.randbytes(rng.choice([16, 4096])))
        kind = f"garbled at {at}"
    return f"log {kind}"


def harm_the_index(directory: Path, rng: random.Random) -> str:
    path = directory / SHM
    if rng.random() < 0.5:
        path.unlink(missing_ok=True)
        return "index of the log removed"
    path.write_bytes(rng.randbytes(32768))
    return "index of the log garbled"


HARMS: Final[list[Callable[[Path, random.Random], str]]] = [
    overwrite_pages, overwrite_pages, overwrite_pages, overwrite_pages, flip_bits, flip_bits, cut_off,
    harm_the_log, harm_the_log, harm_the_index,
]  # fmt: skip


@dataclass
class Tally:
    """How many rounds had which end."""

    refused: int = 0
    found: int = 0
    saved: int = 0
    unharmed: int = 0


async def one_round(original: Original, directory: Path, rng: random.Random, tally: Tally) -> None:
    """Harm a copy; nothing may be lost, changed or doubled then without a named error."""
    shutil.copytree(original.directory, directory)
    what = [rng.choice(HARMS)(directory, rng)]
    if rng.random() < 0.2:
        what.append(rng.choice(HARMS)(directory, rng))
    try:
        await asyncio.wait_for(_check(original, directory, tally), PATIENCE_S)
    except BaseException as error:
        error.add_note("; ".join(what))
        raise
    shutil.rmtree(directory)


async def _check(original: Original, directory: Path, tally: Tally) -> None:
    refused = ""
    try:
        async with opened(directory) as journal:
            read, complete = await _read(journal)
            _in_order(read, original.waiting)
            if complete and not journal.damaged:
                assert read == original.waiting, "messages are lost without a word"
                tally.unharmed += 1
                return
            assert journal.damaged or journal.broken, "it is damaged, and ready"
            tally.found += 1
            await _go_on(journal)
    except JournalFailed as error:
        refused = error.detail
        tally.refused += 1
    if "accept-loss" in refused:
        forget_reached(directory)
    try:
        findings = await asyncio.to_thread(repair.examine, directory / FILE_NAME)
    except JournalDamaged:
        return  # it says that nothing can be saved
    lost = sum(one.messages for one in findings.lost)
    await asyncio.to_thread(repair.save, directory / FILE_NAME, findings, 0)
    async with opened(directory) as journal:
        after, complete = await _read(journal)
        assert complete, "it was skipped, and is there still"
        assert not journal.damaged, journal.damaged
        old = [text for text in after if text != "new"]
        _in_order(old, original.sent)  # of an older state there are those that were acknowledged since
        if "accept-loss" not in refused and not findings.newest:
            missing = len(original.waiting) - len(old)
            assert 0 <= missing <= lost, f"{missing} messages are missing, and {lost} are said to be lost"
    tally.saved += 1


async def _read(journal: Journal) -> tuple[list[str], bool]:
    """What a reader gets, and whether it came to the end; it acknowledges nothing, and leases all."""
    read: list[str] = []
    held: list[Acknowledgement] = []
    complete = False
    with contextlib.suppress(*NAMED):
        while (page := await lease(journal, most=50)).lease is not None:
            read += bodies(page.messages)
            held.append(acknowledgement(page))
        complete = True
    for one in held:
        try:
            await journal.release(one)
        except NAMED:
            complete = False
    return read, complete


async def _go_on(journal: Journal) -> None:
    """What does not touch the damage goes on, or is refused by a named error."""
    for _ in range(3):
        with contextlib.suppress(*NAMED):
            await send(journal, "new")
    for look in (journal.addresses, journal.bridge_lags, journal.id_caches):
        with contextlib.suppress(*NAMED):
            await look()


def _in_order(read: list[str], of: list[str]) -> None:
    """Each of these is one of those, whole, once and in their order."""
    places = [of.index(text) for text in read]
    assert places == sorted(set(places)), "out of order, or twice"
