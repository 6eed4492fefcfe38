"""The record of a bridge's first start ever, which is kept by the target as all that is remembered is. Pure.

A stream of its own, ``kafka:<cluster id>:start:0``, in which nothing ever comes: its coverage ``[0, 0)`` says
that the bridge has looked at this source once, also where there was no topic yet of which an offset could be
committed. What comes later is new to a bridge that has run, and begins at position 0.

One lane speaks of it, so that no two open one stream; the others go by the marks of the progress group and
by `StreamState.has_run`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.kafka.records.identity import stream_identity
from bridge.messages.batch import Batch
from bridge.relay.ports import Stream, StreamState

#: The lane that records it: every bridge has this one.
RECORDING_LANE: Final = 0
#: Stands for the topic, in the identity and as the address. No topic's id looks like it.
_NAME: Final = "start"


@dataclass(slots=True)
class FirstStart:
    """The record, as far as one lane speaks of it."""

    #: Whether this lane does.
    records: bool
    #: The target has it.
    is_recorded: bool = False
    _identity: str = ""
    #: What is to be sent.
    _due: Batch | None = None

    def streams(self, cluster: str) -> list[Stream]:
        """What the target is to be asked about, until it has the record."""
        if not self.records or self.is_recorded:
            return []
        self._identity = stream_identity(cluster, _NAME, 0)
        return [Stream(self._identity, _NAME, _NAME, empty=True)]

    def opened(self, resume: Mapping[str, StreamState]) -> None:
        """Take the target's word; where it has no record, one is due."""
        state = resume.get(self._identity)
        if state is not None:
            self.is_recorded = state.next is not None
            self._due = None if self.is_recorded else Batch(self._identity, 0, 0)

    def is_it(self, stream: str) -> bool:
        """Whether that is its stream."""
        return bool(self._identity) and stream == self._identity

    def take(self) -> Batch | None:
        """What is to be sent, once; None: nothing."""
        due, self._due = self._due, None
        return due

    def settled(self) -> None:
        """The target has it."""
        self.is_recorded = True

    def put_off(self, streams: Collection[str]) -> None:
        """Send nothing until it is opened again."""
        if self._identity in streams:
            self._due = None

    def forget(self) -> None:
        """The next life asks again: the target may be another by then."""
        self.is_recorded, self._due = False, None
