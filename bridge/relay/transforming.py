"""The transformer of a lane: called in a thread of its own, or in several, one batch at a time, in order.

A thread cannot be ended from outside. So a call that does not return is given up: its stream waits, a stop
does not wait for it, and no other call begins before it has returned. There is at most one thread a lane, and
with several callers (`bridge.transformers.callers`) one for each besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from bridge.messages.batch import Batch
from bridge.transformers.callers import Callers
from bridge.transformers.loading import Call
from bridge.transformers.parts import NOT_NOW, PART_S, Part, TransformerOptions, transform_part


class Transforming:
    """Transforms the batches of one lane of a bridge, in one process, from its first start on."""

    def __init__(self, bridge: str, load: Callable[[], Call], options: TransformerOptions) -> None:
        """`load` finds the transformer and makes it; it is called in the thread, before the first message."""
        self._name: Final = f"transformer-{bridge}"
        self._load = load
        self._options = options
        self._call: Call | None = None
        #: None: one thread calls the transformer.
        self._callers = Callers(self._name, load, options) if options.callers > 1 else None
        #: The work that has not returned; its caller may have given it up.
        self._work: _Work | None = None
        self._turn = asyncio.Lock()

    async def part(self, batch: Batch, address: str) -> Part:
        """Transform the first messages of the batch; what is left of it (`Part.rest`) is for the next call.

        `address`: the name at the source of the batch's stream. A call that is cancelled does not wait for
        the transformer.

        Raises: TransformerRefused: it cannot be imported or made.
        """
        if batch.block is None:
            return Part((batch,), None)
        async with self._turn:
            if self._work is not None and not await self._has_returned(self._work):
                return self._busy(batch, "still has not returned from an earlier call")
            self._work = work = _Work(partial(self._transform, batch, address))
            threading.Thread(target=work.run, name=self._name, daemon=True).start()
            try:
                if not await self._has_returned(work):
                    return self._busy(batch, f"has not returned for {address}")
            finally:
                work.is_given_up = True  # without effect where it has returned
            self._work = None
            return work.outcome()

    async def _has_returned(self, work: _Work) -> bool:
        with contextlib.suppress(TimeoutError):
            # Not `wait_for`, which swallows a cancellation that comes together with the return.
            async with asyncio.timeout(self._options.call_timeout_ms / 1000 + PART_S):
                await work.returned.wait()
        return work.returned.is_set()

    def _busy(self, batch: Batch, what: str) -> Part:
        limit = f"call-timeout is {self._options.call_timeout_ms} ms"
        return Part((), batch, f"{NOT_NOW}: {self._options.path} {what}; {limit}")

    def _transform(self, batch: Batch, address: str, is_given_up: Callable[[], bool]) -> Part:
        """Runs in the thread."""
        if self._callers is not None:
            return self._callers.part(batch, address, is_given_up)
        if self._call is None:
            self._call = self._load()
        return transform_part(self._call, batch, address, self._options, is_given_up)


class _Work:
    """One part that is being transformed in its thread."""

    def __init__(self, work: Callable[[Callable[[], bool]], Part]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._made: Part | BaseException | None = None
        #: Set in the loop once the thread has returned.
        self.returned = asyncio.Event()
        #: Nothing waits for the outcome any more: the thread ends behind the message that it is at.
        self.is_given_up = False

    def run(self) -> None:
        """Do the work; called in the thread."""
        try:
            self._made = self._work(lambda: self.is_given_up)
        except BaseException as error:  # noqa: BLE001 - `outcome` raises it
            self._made = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self.returned.set)

    def outcome(self) -> Part:
        """The part, once it has returned. Raises: the error of the work."""
        made, self._made = self._made, None
        if isinstance(made, BaseException):
            raise made
        assert made is not None
        return made
