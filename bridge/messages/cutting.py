"""Cuts messages into batches by their sizes: small ones together, large ones alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def divisions(sizes: Sequence[int], batch_bytes: int, large_bytes: int) -> Iterator[tuple[int, int]]:
    """The cuts between batches of messages of these sizes, as index ranges ``[start, stop)``.

    A batch has at most `batch_bytes`; one message may be larger. One of `large_bytes` or more is alone.
    """
    start = total = 0
    for index, size in enumerate(sizes):
        alone = size >= large_bytes
        if index > start and (alone or total + size > batch_bytes):
            yield start, index
            start, total = index, 0
        total += size
        if alone:
            yield start, index + 1
            start, total = index + 1, 0
    if start < len(sizes):
        yield start, len(sizes)
