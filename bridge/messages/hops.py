"""The loop guard: the bridges through which a message has come (design section 6, last line). Pure.

A hop is a bridge and the store that it read from, eight bytes. A message's hops are concatenated, oldest
first; the same hop twice is a loop. They travel beside the messages of a block (`Block.hops`), as runs, so
that no message is opened for them; only where a message is a Kafka record are they its header `HEADER`. A
source adds its bridge's hop to the messages that it hands out, and refuses a message that may not take it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from bridge.messages.value_runs import joined

#: The header's name; its value is the concatenated hops.
HEADER: Final = "core-bridge-hops"
#: Bytes of one hop.
HOP_BYTES: Final = 8
#: Most hops that are kept: above every `max-hops`. Of more, the newest are kept.
HOPS_MOST: Final = 64

#: A number of consecutive messages with the same hops: ``(messages, hops)``.
HopsRun = tuple[int, bytes]
#: The hops of a block's messages, in order, no two neighbours equal; empty: no message has come through a
#: bridge.
Hops = tuple[HopsRun, ...]


def hop(bridge: str, store: str) -> bytes:
    """The hop of a bridge that reads from `store` (a store identity)."""
    return blake2b(f"{bridge}\0{store}".encode(), digest_size=HOP_BYTES).digest()


# -- one message's -----------------------------------------------------------------------------------------


def problem(passed: bytes | None, own: bytes, max_hops: int) -> str | None:
    """The reason why a message with the hops `passed` may not take the hop `own`, as `CODE: detail`; None: it
    may.
    """
    if not passed:
        return None
    if len(passed) % HOP_BYTES:
        return f"INVALID_HOPS: hops have {HOP_BYTES} bytes each; found {len(passed)} bytes"
    hops = [passed[start : start + HOP_BYTES] for start in range(0, len(passed), HOP_BYTES)]
    if own in hops:
        return "LOOP: the message has passed this bridge from this store before"
    if len(hops) >= max_hops:
        return f"TOO_MANY_HOPS: bridges that the message has passed: {len(hops)}; max-hops is {max_hops}"
    return None


def extended(passed: bytes | None, own: bytes) -> bytes:
    """The hops after the hop `own`."""
    whole = passed or b""
    whole = whole[: len(whole) - len(whole) % HOP_BYTES]
    return (whole + own)[-HOPS_MOST * HOP_BYTES :]


# -- a block's ---------------------------------------------------------------------------------------------


def taken(runs: Hops, count: int, own: bytes, max_hops: int) -> tuple[Hops, list[tuple[int, int, str]]]:
    """The hops of `count` messages after they take the hop `own`.

    Returns them extended, and the runs of messages that may not take it:
    ``(first index, one beyond the last, CODE: detail)``.
    """
    if not runs:
        return ((count, own),), []
    found: list[HopsRun] = []
    refused: list[tuple[int, int, str]] = []
    index = 0
    for length, passed in runs:
        reason = problem(passed, own, max_hops)
        if reason is not None:
            refused.append((index, index + length, reason))
        found.append((length, extended(passed, own)))
        index += length
    return joined(found), refused


def given_back(runs: Hops, own: bytes) -> Hops:
    """The hops from before the hop `own` was taken, where it was the last: the bridge is to take it again."""
    return joined((count, value[:-HOP_BYTES] if value.endswith(own) else value) for count, value in runs)


def size(runs: Hops) -> int:
    """Bytes of the hops; each counts as often as it is written."""
    return sum(len(value) for _, value in runs) if runs else 0
