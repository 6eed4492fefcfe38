"""Reads a range of a node's address by browsing, which changes nothing: positions, headers and IDs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from dedup.reconcile.audit.plan import Range
from dedup.reconcile.audit.records import Record

#: Messages of a page; a node sends at most 16 MiB of them at a time (docs/http.md).
PAGE: Final = 1_000


class Pages(Protocol):
    """An open connection to a node."""

    async def page(self, address: str, after: int, most: int) -> Sequence[Record]:
        """The next messages of an address at positions above `after`, at most `most`; none: there are none.

        Raises: ReadFailed.
        """


class Node(Protocol):
    """The access to a node."""

    def open(self) -> AbstractAsyncContextManager[Pages]:
        """Connect."""


async def read(node: Node, piece: Range) -> AsyncGenerator[Sequence[Record]]:
    """The messages of a range, in order, a page at a time. Those deleted meanwhile are left out.

    Raises: ReadFailed.
    """
    async with node.open() as pages:
        after = piece.start - 1
        while after < piece.end - 1:
            found = await pages.page(piece.topic, after, PAGE)
            if not found:
                return
            after = found[-1][0]
            yield [record for record in found if record[0] < piece.end]
