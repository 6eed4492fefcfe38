"""A filter asked for all messages of a block at once."""

from __future__ import annotations

from bridge.filters.filter import Filter
from bridge.messages.block import Block


def taken(condition: Filter, block: Block, address: str) -> list[int]:
    """Indices of the block's messages for which the condition is true, ascending.

    `address` is where they are stored, or came from. The block is decoded for it.
    """
    ids = dict(block.ids)
    return [
        index
        for index, message in enumerate(block.messages())
        if condition.takes(message, address, ids.get(index))
    ]
