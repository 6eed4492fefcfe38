"""Bodies that several logs get in one commit group: each of them is stored once. Pure.

A message for several nodes goes to several logs, in the same transaction. What these got alike is encoded to
equal bodies; what only some of them got is not looked for. Each log is limited by what it would take alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.journal.rules.arrivals import Arrivals
from bridge.messages.block import Block


@dataclass(slots=True)
class SharedBody:
    """A body that several blocks of a commit group have."""

    body: bytes
    #: Position of the first of them; None: none is stored yet.
    body_id: int | None = None


def find_shared(logs: Iterable[Arrivals]) -> dict[int, SharedBody]:
    """The bodies that more than one block has, by the `id` of each of these blocks.

    The messages are encoded for it, all of the group's at once. Bodies are compared where count, length and
    the last message's checksum agree.
    """
    alike: dict[tuple[int, int, int], list[Block]] = {}
    shared: dict[int, SharedBody] = {}
    for log in logs:
        log.encode()
        for block, *_ in log.blocks():
            firsts = alike.setdefault((block.count, len(block.body), block.checksum), [])
            first = next((one for one in firsts if one.body == block.body), None)
            if first is None:
                firsts.append(block)
            else:
                shared[id(block)] = shared.setdefault(id(first), SharedBody(first.body))
    return shared
