"""Calls a transformer with the messages of a batch, one after the other, as far as limits allow.

What it makes of them is cut into batches anew, as messages may have grown; memory is bounded by a batch and a
message, whatever the transformer makes of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block
from bridge.messages.cutting import divisions
from bridge.messages.message import Message as StoredMessage
from bridge.messages.message import carried_id, headers_size
from bridge.messages.origins import duplicate_ids
from bridge.transformers.loading import Call, told
from bridge.transformers.message import Message, NotNow, shown, taken

#: Seconds after which what a slow transformer has made is sent, and the rest of the batch follows.
PART_S: Final = 1.0
#: Begins the reason of a dead letter whose message the transformer could not take.
FAILED: Final = "TRANSFORMER_FAILED"
#: Begins the reason why a stream waits for its transformer.
NOT_NOW: Final = "TRANSFORMER_NOT_NOW"


@dataclass(frozen=True, slots=True)
class TransformerOptions:
    """A bridge's settings for its transformer. Sizes in bytes."""

    #: Its dotted path, as errors name it.
    path: str
    #: Largest batch (`producer-window-size`); one message may be larger.
    batch_bytes: int = 1024 * 1024
    #: From here a message travels in a batch of its own (`min-large-message-size`).
    large_bytes: int = 100 * 1024
    #: Tries of a message before it is refused (`max-delivery-attempts`).
    attempts: int = 10
    #: Longest that one message's tries, or a wait for an earlier call, may take (`call-timeout`).
    call_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Part:
    """The outcome of a batch's first messages."""

    #: They cover its beginning, in order.
    made: Sequence[Batch]
    #: The end of the batch, which is still to be transformed; None: all of it is.
    rest: Batch | None
    #: The reason why the first message of `rest` has to wait, as `CODE: detail`; empty: it has not.
    not_now: str = ""


def transform_part(
    call: Call, batch: Batch, address: str, options: TransformerOptions, is_given_up: Callable[[], bool]
) -> Part:
    """Transform the first messages of the batch: all, or as many as fill a batch or take `PART_S`.

    `address` is the stream's at the source; `is_given_up`: whether the caller waits no more. Messages that
    were refused before stay as they are, and one that raises at its last try is refused, as it was read.
    """
    assert batch.block is not None
    places = list(run_arithmetic.positions(batch.runs))
    refusals = dict(batch.refusals)
    ids = _Ids(batch.block)
    made: list[StoredMessage | None] = []
    sizes: list[int] = []
    total, not_now, end_s = 0, "", time.monotonic() + PART_S
    read = batch.block.messages()
    for index, before in enumerate(read):
        # Full where one more message like the last would not fit: it would be a batch by itself.
        if index and (total + sizes[-1] > options.batch_bytes or time.monotonic() > end_s or is_given_up()):
            break
        one: StoredMessage | None = before
        if places[index] not in refusals:
            seen = partial(shown, before, address, partial(ids.of, index, before))
            try:
                one = _tried(call, before, seen, options.attempts)
            except NotNow as error:
                where = f"{options.path} at {address} position {places[index]}"
                not_now = f"{NOT_NOW}: {where}: {told(error)}"
                break
            except _Refused as refused:
                refusals[places[index]] = f"{FAILED}: {options.path}: {refused}"
        made.append(one)
        sizes.append(0 if one is None else len(one.body or b"") + headers_size(one.key, one.headers))
        total += sizes[-1]
    return _cut(batch, places, list(zip(read, made, strict=False)), sizes, refusals, options, not_now)


class _Ids:
    """The messages' duplicate IDs, made when the first is asked for."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._found: Sequence[bytes | None] | None = None

    def of(self, index: int, message: StoredMessage) -> bytes | None:
        """The ID of the message at this index: the one that it came with, else its stamp."""
        carried = carried_id(message)
        if carried is not None:
            return carried
        if self._found is None:
            self._found = duplicate_ids(self._block, stamp=True)
        return self._found[index]


class _Refused(Exception):
    """The transformer has raised at each try."""


def _tried(
    call: Call, before: StoredMessage, seen: Callable[[], Message], attempts: int
) -> StoredMessage | None:
    """What the transformer makes of the message; None: it drops it. Raises: NotNow; _Refused."""
    for attempt in range(1, attempts + 1):
        try:
            made = call(seen())
            if made is None:
                return None
            if not isinstance(made, Message):
                raise TypeError(f"a transformer returns a Message or None; found {type(made).__name__}")
            return taken(before, made)
        except NotNow:
            raise
        except BaseException as error:  # noqa: BLE001 - also SystemExit: it is foreign code
            if attempt == attempts:
                raise _Refused(f"{told(error)}; tries: {attempts}") from None
    raise AssertionError("there is at least one try")


def _cut(
    batch: Batch,
    places: Sequence[int],
    pairs: Sequence[tuple[StoredMessage, StoredMessage | None]],
    sizes: Sequence[int],
    refusals: dict[int, str],
    options: TransformerOptions,
    not_now: str,
) -> Part:
    """The batches of the first messages, and what is left of `batch`.

    `pairs`: each as it was read and as it was made.
    """
    parts: list[Batch] = []
    rest: Batch | None = batch
    for start, stop in divisions(sizes, options.batch_bytes, options.large_bytes):
        assert rest is not None
        part = rest
        if stop < len(places):
            part, rest = rest.until(places[stop]), rest.after(places[stop])
        else:
            rest = None
        changed = any(made is not None and made is not before for before, made in pairs[start:stop])
        parts.append(part.transformed([made for _, made in pairs[start:stop]], refusals, changed=changed))
    return Part(parts, rest, not_now)
