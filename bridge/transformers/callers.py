"""Calls a transformer with the messages of a batch, several at a time: in order for each key, given on in the
order of the batch; one at a time where there is one caller.

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

    @property
    def are_calling(self) -> bool:
        """Whether a call has not returned."""
        divided = self._batch
        return divided is not None and divided.is_calling

    def wait_for_calls(self) -> None:
        """Return once no call runs; what has begun a part is to be given up before."""
        divided = self._batch
        if divided is not None:
            divided.wait_for_calls()

    def part(self, batch: Batch, address: str, is_given_up: Callable[[], bool]) -> Part:
        """Transform the first messages of the batch: all, or as many as fill a batch or take `PART_S`; called
        by one thread at a time.

        `address` is the stream's at the source; `is_given_up`: whether nothing waits for the outcome any
        more. Messages that were refused before stay as they are, and one that raises at its last try is
        refused, as it was read. What was made and not given on is dropped, and made again, unless `batch` is
        what the last part left (`Part.rest`). Then no call begins before those for the other batch have
        returned.

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
    """A batch, divided among callers. All of its state changes under `_lock`."""

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
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        #: Callers that have a thread.
        self._running: set[int] = set()
        #: Whether a call may begin.
        self._is_open = False
        #: Whether the part has taken `PART_S`: it ends as soon as it has a message.
        self._is_late = False
        self._is_given_up: Callable[[], bool] = lambda: False
        #: Bytes of what was made and not given on; and whether one more like the last would not fit: it would
        #: be a batch by itself.
        self._made_bytes = 0
        self._is_full = False
        #: The first message that is not made, and those behind it that are.
        self._stop = 0
        self._ahead: set[int] = set()
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
        with self._lock:
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
            self._made_bytes -= self._opened.made_bytes(stop)
            self._is_full = self._made_bytes >= self._limit_bytes
            not_now = self._not_now if stop == self._end else ""
        return self._opened.part(stop, not_now)  # not under the lock, which calls that go on may ask for

    @property
    def is_calling(self) -> bool:
        """Whether a call has not returned."""
        with self._lock:
            return bool(self._running)

    def wait_for_calls(self) -> None:
        """Return once no call runs; none begins."""
        with self._lock:
            self._changed.wait_for(lambda: not self._running)

    def _has_ended(self) -> bool:
        return not self._is_open or not self._running

    def _end_if_due(self) -> None:
        is_due = self._is_late or self._is_full
        if self._stop == self._end or (is_due and self._stop > self._opened.first):
            self._is_open = False
            self._changed.notify_all()

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
            index = self._next(caller)
            while index is not None:
                try:
                    size = self._opened.make(index, call)
                except NotNow as error:
                    self._hold(index, error)
                    index = self._next(caller)
                else:
                    index = self._next(caller, index, size)
        except BaseException as error:  # noqa: BLE001 - `part` raises it
            self._fail(caller, error)

    def _next(self, caller: int, made: int | None = None, size: int = 0) -> int | None:
        """Take the message that was made; answers the caller's next one. None: its thread ends, and is none
        of the running ones any more. One call a message, as the lock costs time.
        """
        with self._lock:
            if made is not None:
                self._put(made, size)
            share = self._shares[caller]
            if share and self._may_begin(share[0]):
                return share.popleft()
            self._running.discard(caller)
            self._changed.notify_all()
            return None

    def _may_begin(self, index: int) -> bool:
        if not self._is_open or index >= self._end or self._is_given_up():
            return False
        return index == self._stop or self._made_bytes < self._limit_bytes

    def _put(self, index: int, size: int) -> None:
        self._made_bytes += size
        self._is_full = self._made_bytes + size > self._limit_bytes
        if index != self._stop:
            self._ahead.add(index)
            return
        self._stop += 1
        while self._stop in self._ahead:
            self._ahead.remove(self._stop)
            self._stop += 1
        if self._is_full or self._is_late or self._stop == self._end:
            self._end_if_due()

    def _hold(self, index: int, error: NotNow) -> None:
        """No part reaches this message: messages behind it are not made any more."""
        why = self._opened.not_now(index, error)  # not under the lock: it is foreign code that gives its text
        with self._lock:
            if index < self._end:
                self._end, self._not_now = index, why
                self._end_if_due()

    def _fail(self, caller: int, error: BaseException) -> None:
        with self._lock:
            self._error, self._is_open = error, False
            self._running.discard(caller)
            self._changed.notify_all()


def _shares(messages: Sequence[StoredMessage], callers: int) -> Sequence[deque[int]]:
    """By caller, the indices of its messages, in order."""
    shares: list[deque[int]] = [deque() for _ in range(callers)]
    for index, message in enumerate(messages):
        shares[caller_of(message, callers)].append(index)
    return shares
