"""What a transformer makes of the messages of a batch, which `bridge.transformers.callers` calls it with.

It is cut into batches anew, as messages may have grown; memory is bounded by a batch and a message of each
caller, whatever the transformer makes of them.
"""

from __future__ import annotations

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
    #: Most calls at a time (`concurrency` of a bridge that reads the journal).
    callers: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    """The outcome of a batch's first messages."""

    #: They cover its beginning, in order.
    made: Sequence[Batch]
    #: The end of the batch, which is still to be transformed; None: all of it is.
    rest: Batch | None
    #: The reason why the first message of `rest` has to wait, as `CODE: detail`; empty: it has not.
    not_now: str = ""


class OpenedBatch:
    """A batch whose messages are decoded, the outcome of each that was transformed, and what is left of it.

    Messages are known by their index. Threads may make several at a time, each another one, while one thread
    takes parts.
    """

    def __init__(self, batch: Batch, address: str, options: TransformerOptions) -> None:
        """`address`: the name at the source of the batch's stream."""
        assert batch.block is not None
        #: As they were read.
        self.read: Final = batch.block.messages()
        #: The part of the batch from `first` on; None: there is none.
        self.rest: Batch | None = batch
        #: The first message that no part has had yet.
        self.first = 0
        self._places: Final = list(run_arithmetic.positions(batch.runs))
        self._refusals: Final = dict(batch.refusals)
        self._ids: Final = _Ids(batch.block)
        self._address: Final = address
        self._options: Final = options
        #: None: not made yet, dropped, or in an earlier part.
        self._made: Final[list[StoredMessage | None]] = [None] * len(self.read)
        self._sizes: Final = [0] * len(self.read)

    def make(self, index: int, call: Call) -> int:
        """Transform a message, unless it was refused before; answers the bytes of what was made of it.

        Raises: NotNow: the transformer cannot work now; nothing was made.
        """
        before = self.read[index]
        made: StoredMessage | None = before
        place = self._places[index]
        if place not in self._refusals:
            seen = partial(shown, before, self._address, partial(self._ids.of, index, before))
            try:
                made = _tried(call, before, seen, self._options.attempts)
            except _Refused as refused:
                self._refusals[place] = f"{FAILED}: {self._options.path}: {refused}"
        size = 0 if made is None else len(made.body or b"") + headers_size(made.key, made.headers)
        self._made[index], self._sizes[index] = made, size
        return size

    def made_bytes(self, stop: int) -> int:
        """Bytes of what was made of the messages from `first` up to the one at `stop`."""
        return sum(self._sizes[self.first : stop])

    def not_now(self, index: int, error: NotNow) -> str:
        """The reason why the stream waits at this message."""
        where = f"{self._options.path} at {self._address} position {self._places[index]}"
        return f"{NOT_NOW}: {where}: {told(error)}"

    def part(self, stop: int, not_now: str = "") -> Part:
        """The messages from `first` up to the one at `stop`, all of which were made, and what is left.

        They are in no later part.
        """
        first, self.first = self.first, stop
        parts: list[Batch] = []
        sizes = self._sizes[first:stop]
        for start, end in divisions(sizes, self._options.batch_bytes, self._options.large_bytes):
            made = self._made[first + start : first + end]
            read = self.read[first + start : first + end]
            changed = any(new is not None and new is not old for new, old in zip(made, read, strict=True))
            parts.append(self._cut(first + end).transformed(made, self._refusals, changed=changed))
        self._made[first:stop] = [None] * (stop - first)  # freed: the batch may take many parts
        return Part(parts, self.rest, not_now)

    def _cut(self, stop: int) -> Batch:
        """Take what comes before the message at `stop` off the rest."""
        assert self.rest is not None
        part = self.rest
        if stop == len(self._places):
            self.rest = None
            return part
        place = self._places[stop]
        self.rest = part.after(place)
        return part.until(place)


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
    """The message as the transformer returns it; None: it drops it. Raises: NotNow; _Refused."""
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
