"""Notices: what the extensions at both ends of a link say to each other, beside its batches.

The link carries them as they are (`bridge.link.frames.Notice`), outside credit, and knows nothing of their
meaning. An extension gives its correspondent with the link: as an argument of `NodeTarget`, or in the
`LinkEnd` that it answers a HELLO with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.errors import BridgeError
from bridge.link.frames import Hello, Welcome
from bridge.link.machine import LinkState, Machine
from bridge.relay.ports import Target


class Correspondent(Protocol):
    """The extension at this end of a link, which exchanges notices with the one at the other end.

    Its methods are called by the event loop, one at a time, and must not block. An error that they raise
    closes the link: of a BridgeError the other end gets code and text.
    """

    def connected(self, notify: Callable[[bytes], bool], peer: Hello | Welcome) -> None:
        """The link is open. `notify` sends a notice to the other end.

        It returns False where nothing is sent, because the link has ended or `limits.NOTICES_MOST` notices
        wait to leave: say it again later. It raises BrokenFrame for more than `limits.NOTICE_MOST` bytes.
        """

    def noticed(self, body: bytes) -> None:
        """A notice has come. The link keeps none, and reads on once this has returned.

        Raises: BridgeError: the link closes with its code, TargetRefused for good.
        """

    def disconnected(self) -> None:
        """The link has ended. Called once after each `connected`."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The part of a node that serves a link which another node has opened."""

    #: Not open.
    target: Target
    #: None: notices that come are ignored.
    correspondent: Correspondent | None = None


class Correspondence:
    """The exchange of notices at one end of one link, from its opening to its end."""

    def __init__(
        self,
        machine: Machine[Any],
        send_soon: Callable[[], None],
        named: Callable[[Exception], BridgeError],
    ) -> None:
        """`send_soon` is called after each notice that is to leave; `named` is an error as the other end may
        see it.
        """
        self._machine = machine
        self._send_soon = send_soon
        self._named = named
        #: None: there is none, or the link is not open.
        self._correspondent: Correspondent | None = None

    def begin(self, correspondent: Correspondent | None, peer: Hello | Welcome) -> None:
        """The handshake is over. Does nothing where the link has ended in it."""
        if correspondent is not None and self._machine.state is LinkState.OPEN:
            self._correspondent = correspondent
            self._call(correspondent.connected, self._notify, peer)

    def noticed(self, body: bytes) -> None:
        """A notice has come."""
        if self._correspondent is not None:
            self._call(self._correspondent.noticed, body)

    def end(self) -> None:
        """The link has ended. Later calls do nothing."""
        correspondent, self._correspondent = self._correspondent, None
        if correspondent is not None:
            self._call(correspondent.disconnected)

    def _notify(self, body: bytes) -> bool:
        taken = self._machine.notify(body)
        self._send_soon()
        return taken

    def _call(self, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - an extension's error ends its link, and no more
            self._machine.fail(self._named(error))
