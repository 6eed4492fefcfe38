"""The record of a bridge's first start ever, which the target keeps with its other state. Pure.

A stream of its own, ``kafka:<cluster id>:start:0``, which never has messages: its coverage ``[0, 0)`` says
that the bridge has examined this source once, also where there was no topic yet of which an offset could be
committed. Topics that appear later are new to a bridge that has run, and begin at position 0.

Only one lane sends it, so that no two open one stream; the others use the marks of the progress group and
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
#: The name in place of the topic, in the identity and as the address. No topic's id looks like it.
_NAME: Final = "start"


@dataclass(slots=True)
class FirstStart:
    """The record, as one lane handles it."""

    #: Whether this lane sends it.
    records: bool
    #: Whether the target has it.
    is_recorded: bool = False
    _identity: str = ""
    #: The coverage that is to be sent.
    _due: Batch | None = None

    def streams(self, cluster: str) -> list[Stream]:
        """The stream that the target is asked about, until it has the record; else none."""
        if not self.records or self.is_recorded:
            return []
        self._identity = stream_identity(cluster, _NAME, 0)
        return [Stream(self._identity, _NAME, _NAME, empty=True)]

    def opened(self, resume: Mapping[str, StreamState]) -> None:
        """Take the target's state of the stream; where it has no record, one is due."""
        state = resume.get(self._identity)
        if state is not None:
            self.is_recorded = state.next is not None
            self._due = None if self.is_recorded else Batch(self._identity, 0, 0)

    def is_it(self, stream: str) -> bool:
        """Whether `stream` is the record's stream."""
        return bool(self._identity) and stream == self._identity

    def take(self) -> Batch | None:
        """The coverage to send, once; None: nothing."""
        due, self._due = self._due, None
        return due

    def settled(self) -> None:
        """Note that the target has the record."""
        self.is_recorded = True

    def back_off(self, streams: Collection[str]) -> None:
        """Send nothing until the stream is opened again."""
        if self._identity in streams:
            self._due = None

    def forget(self) -> None:
        """Reset: the next start asks again, as the target may be another by then."""
        self.is_recorded, self._due = False, None
