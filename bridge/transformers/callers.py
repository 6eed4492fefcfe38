"""Calls a transformer with several messages of a batch at a time: in order for each key, given on in the
order of the batch.

The messages of a batch are divided among callers. Each has a thread, and a transformer of its own where that
is a class. A part has the first messages of what is left of the batch, up to the first one that is not made;
what is made behind it is kept for the next part. So a slow call holds back what follows it in the batch, and
no call of another caller.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from bridge.messages.batch import Batch
from bridge.messages.message import Message as StoredMessage
from bridge.transformers.loading import Call
from bridge.transformers.message import NotNow
from bridge.transformers.parts import PART_S, OpenedBatch, Part, TransformerOptions

#: Header that says which messages belong together, where they have no key.
GROUP_HEADER: Final = "JMSXGroupID"


def caller_of(message: StoredMessage, callers: int) -> int:
    """The number of the message's caller, by its key, else by its group; 0 where it has neither."""
    key = message.header(GROUP_HEADER) if message.key is None else message.key
    return zlib.crc32(key or b"") % callers


class Callers:
    """The callers of one bridge, from their first batch on."""

    def __init__(self, name: str, load: Callable[[], Call], options: TransformerOptions) -> None:
        """`name` begins those of their threads; `load` finds and makes the transformer, once for each."""
        self._name = name
        self._options = options
        self._transformers = _Transformers(load, options.callers)
        #: The batch of which a part was given on, or was to be; None: all of it was.
        self._batch: _DividedBatch | None = None

    def part(self, batch: Batch, address: str, is_given_up: Callable[[], bool]) -> Part:
        """As `bridge.transformers.parts.transform_part`; called by one thread at a time.

        What was made and not given on is dropped, and made again, unless `batch` is what the last part left
        (`Part.rest`). Then no call begins before those for the other batch have returned.

        Raises: TransformerRefused: it cannot be imported or made.
        """
        divided = self._batch
        if divided is None or not divided.goes_on_with(batch):
            if divided is not None:
                divided.wait_for_calls()
            opened = OpenedBatch(batch, address, self._options)
            divided = self._batch = _DividedBatch(opened, self._options, self._transformers, self._name)
        part = divided.part(is_given_up)
        if part.rest is None:
            self._batch = None
        return part


class _Transformers:
    """The transformer of each caller, made before its first call, one after the other."""

    def __init__(self, load: Callable[[], Call], callers: int) -> None:
        self._load = load
        self._made: list[Call | None] = [None] * callers
        self._turn = threading.Lock()

    def of(self, caller: int) -> Call:
        """The transformer of this caller. Raises: TransformerRefused."""
        with self._turn:
            call = self._made[caller]
            if call is None:
                call = self._made[caller] = self._load()
            return call


class _DividedBatch:
    """A batch, divided among callers. All of its state changes under `_changed`."""

    def __init__(
        self, opened: OpenedBatch, options: TransformerOptions, transformers: _Transformers, name: str
    ) -> None:
        self._opened = opened
        self._transformers = transformers
        self._name = name
        #: Bytes that were made and not given on: from here on only the call that all others wait for begins.
        self._limit_bytes = options.batch_bytes
        #: By caller, the messages that it has still to be called with, by index, in order.
        self._shares = _shares(opened.read, options.callers)
        self._changed = threading.Condition()
        #: Callers that have a thread.
        self._running: set[int] = set()
        #: Whether a call may begin.
        self._is_open = False
        #: Whether the part has taken `PART_S`: it ends as soon as it has a message.
        self._is_late = False
        self._is_given_up: Callable[[], bool] = lambda: False
        #: Bytes of what was made and not given on, by message; and their sum.
        self._made: dict[int, int] = {}
        self._made_bytes = 0
        #: The first message that is not made.
        self._stop = 0
        #: The message that has to wait, which no part reaches beyond, and why; one beyond the last: none has.
        self._end = len(opened.read)
        self._not_now = ""
        self._error: BaseException | None = None

    def goes_on_with(self, batch: Batch) -> bool:
        """Whether `batch` is what the last part left, to be gone on with."""
        rest = self._opened.rest
        if rest is None or self._opened.first == self._end or self._error is not None:
            return False
        wanted = (rest.stream, rest.from_, rest.refusals)
        return batch.block is rest.block and (batch.stream, batch.from_, batch.refusals) == wanted

    def part(self, is_given_up: Callable[[], bool]) -> Part:
        """The first messages of what is left. Raises: TransformerRefused."""
        with self._changed:
            self._is_given_up = is_given_up
            self._is_open, self._is_late = True, False
            self._end_if_due()
            self._start_callers()
            if not self._changed.wait_for(self._has_ended, PART_S):
                self._is_late = True
                self._end_if_due()
                self._changed.wait_for(self._has_ended)
            self._is_open = False
            if self._error is not None:
                raise self._error
            stop = self._stop
            self._made_bytes -= sum(self._made.pop(index) for index in range(self._opened.first, stop))
            not_now = self._not_now if stop == self._end else ""
        return self._opened.part(stop, not_now)  # not under the lock, which calls that go on may ask for

    def wait_for_calls(self) -> None:
        """Return once no call runs; none begins."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def _has_ended(self) -> bool:
        return not self._is_open or not self._running

    def _end_if_due(self) -> None:
        is_full = self._is_late or self._made_bytes >= self._limit_bytes
        if self._stop == self._end or (is_full and self._stop > self._opened.first):
            self._is_open = False
            self._changed.notify()

    def _start_callers(self) -> None:
        for caller, share in enumerate(self._shares):
            if share and self._is_open and caller not in self._running:
                name = f"{self._name}-{caller}"
                threading.Thread(target=self._run, args=(caller,), name=name, daemon=True).start()
                self._running.add(caller)

    # -- in the callers' threads -------------------------------------------------------------------------

    def _run(self, caller: int) -> None:
        """Call the transformer with this caller's messages, as long as calls may begin."""
        try:
            call = self._transformers.of(caller)
            while (index := self._take(caller)) is not None:
                try:
                    size = self._opened.make(index, call)
                except NotNow as error:
                    self._hold(index, error)
                else:
                    self._put(index, size)
        except BaseException as error:  # noqa: BLE001 - `part` raises it
            self._fail(caller, error)

    def _take(self, caller: int) -> int | None:
        """The caller's next message; None: its thread ends, and is none of the running ones any more."""
        with self._changed:
            share = self._shares[caller]
            if share and self._may_begin(share[0]):
                return share.popleft()
            self._running.discard(caller)
            self._changed.notify()
            return None

    def _may_begin(self, index: int) -> bool:
        if not self._is_open or index >= self._end or self._is_given_up():
            return False
        return index == self._stop or self._made_bytes < self._limit_bytes

    def _put(self, index: int, size: int) -> None:
        with self._changed:
            self._made[index] = size
            self._made_bytes += size
            while self._stop in self._made:
                self._stop += 1
            self._end_if_due()

    def _hold(self, index: int, error: NotNow) -> None:
        """No part reaches this message: messages behind it are not made any more."""
        with self._changed:
            if index < self._end:
                self._end, self._not_now = index, self._opened.not_now(index, error)
                self._end_if_due()

    def _fail(self, caller: int, error: BaseException) -> None:
        with self._changed:
            self._error, self._is_open = error, False
            self._running.discard(caller)
            self._changed.notify()


def _shares(messages: Sequence[StoredMessage], callers: int) -> Sequence[deque[int]]:
    """By caller, the indices of its messages, in order."""
    shares: list[deque[int]] = [deque() for _ in range(callers)]
    for index, message in enumerate(messages):
        shares[caller_of(message, callers)].append(index)
    return shares
