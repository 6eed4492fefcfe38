"""The transformer of a lane: called in a thread of its own, or in several, one batch at a time, in order.

A thread cannot be ended from outside. So a call that does not return is given up: its stream waits, a stop
does not wait for it, and no other call begins before it has returned, by other settings neither. There is one
thread a lane, and one for each caller besides (`bridge.transformers.callers`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from bridge.messages.batch import Batch
from bridge.runtime.threads import Work
from bridge.transformers.callers import Callers
from bridge.transformers.loading import Call
from bridge.transformers.parts import NOT_NOW, PART_S, Part, TransformerOptions


class Transforming:
    """Transforms the batches of one lane of a bridge, in one process, from its first start on."""

    def __init__(
        self,
        bridge: str,
        load: Callable[[], Call],
        options: TransformerOptions,
        earlier: Sequence[Transforming] = (),
    ) -> None:
        """`load` finds the transformer and makes it; it is called in a thread, before the first message.
        `earlier`: the bridge's by other settings, which it has stopped; a call of theirs may still run.
        """
        self._name: Final = f"transformer-{bridge}"
        self._options = options
        self._callers = Callers(self._name, load, options)
        #: Those of which a call may still run; the thread that transforms takes them out.
        self._earlier = list(earlier)
        #: The work that has not returned; its caller may have given it up.
        self._work: Work[Part] | None = None
        self._turn = asyncio.Lock()

    @property
    def is_calling(self) -> bool:
        """Whether a call has not returned, of this one or of an earlier one that it waits for."""
        return self._callers.are_calling or any(one.is_calling for one in tuple(self._earlier))

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
            self._work = work = Work(partial(self._transform, batch, address), self._name)
            try:
                if not await self._has_returned(work):
                    return self._busy(batch, f"has not returned for {address}")
            finally:
                work.is_given_up = True  # without effect where it has returned
            self._work = None
            return work.outcome()

    async def _has_returned(self, work: Work[Part]) -> bool:
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
        while self._earlier:
            self._earlier[0].wait_for_calls()
            self._earlier.pop(0)
        return self._callers.part(batch, address, is_given_up)

    def wait_for_calls(self) -> None:
        """Return once no call of it runs, nor of those that it waits for; the bridge has stopped it."""
        for one in list(self._earlier):
            one.wait_for_calls()
        self._callers.wait_for_calls()


class Transformers:
    """The transformers of the bridges of a process, by whatever settings they were made."""

    def __init__(self) -> None:
        #: By bridge and whether it is for replays: those that call or may call, each with what made it.
        self._made: dict[tuple[str, bool], list[tuple[object, Transforming]]] = {}

    def make(
        self,
        owner: object,
        names: Sequence[str],
        load: Callable[[], Call],
        options: TransformerOptions,
        *,
        replays: bool,
    ) -> Transforming:
        """A transformer of the bridge that has the first of `names`, and had the others. It waits for the
        calls of those that another owner has made for the bridge, or for its replays: that one has stopped.
        """
        earlier: list[Transforming] = []
        for name in filter(None, names):
            left = [
                (by, one) for by, one in self._made.get((name, replays), ()) if by is owner or one.is_calling
            ]
            self._made[name, replays] = left
            earlier += [one for by, one in left if by is not owner]
        made = Transforming(names[0], load, options, earlier)
        self._made[names[0], replays].append((owner, made))
        return made

    def forget_others(self, names: Iterable[str]) -> None:
        """Drop those of bridges that are gone, but for calls that have not returned; `names`: of those that
        are there.
        """
        there = set(names)
        self._made = {
            key: left
            for key, made in self._made.items()
            if (left := [one for one in made if key[0] in there or one[1].is_calling])
        }
