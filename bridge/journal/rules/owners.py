"""Ownership of a bridge's positions: they belong to the caller that first wrote them (design rule 1). Pure.

A bridge never sends again what is covered. So a caller that could cover another's stream could make its
messages vanish as duplicates; only the caller that wrote a stream's positions may move them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.errors import BridgeError, TargetRefused

#: Callers that may do everything: any token of the acceptor, and any caller where no credential is asked for.
EVERY_RIGHT: Final = "every-right"
#: This node's own bridges.
THIS_NODE: Final = "this-node"
#: Positions of streams that one user without every right may have here: each costs memory for good.
STREAMS_MOST: Final = 65_536
#: Those of dead letters among them: each remembers which positions have one.
LETTER_STREAMS_MOST: Final = 4_096
#: Streams of Kafka are relayed by one node after the other, as the bridge's group decides.
_OF_NO_NODE: Final = "kafka:"


class Owner(NamedTuple):
    """The owner of a stream's positions."""

    #: `EVERY_RIGHT`, `THIS_NODE` or ``user:NAME``; empty: not recorded (written by an older version).
    principal: str = ""
    #: UUID of the node that sends the stream; empty: any.
    node: str = ""

    def __str__(self) -> str:
        """The owner in words, for error messages."""
        if not self.principal:
            return "the first that opens them"
        return f"{self.principal}, {f'node {self.node}' if self.node else 'any node'}"


NOT_RECORDED: Final = Owner()


def _may_send_everywhere(_address: str) -> None:
    """This node's own bridges are limited by nothing but its settings."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller that delivers: a user over a link, or this node itself."""

    principal: str = THIS_NODE
    #: UUID of its node; empty: this one.
    node: str = ""
    #: Raises: BridgeError: it may not send to the address.
    check_send: Callable[[str], None] = _may_send_everywhere

    def owns(self, stream: str) -> Owner:
        """The owner that is recorded of a stream that this caller is the first to write."""
        return Owner(self.principal, "" if stream.startswith(_OF_NO_NODE) else self.node)

    def check_address(self, address: str) -> None:
        """Check that the caller may deliver to the address. Raises: TargetRefused."""
        try:
            self.check_send(address)
        except BridgeError as error:
            detail = f"{error.code}: {error.detail}"
            raise TargetRefused(detail, error.key, error.limit, error.found) from error


def check_owner(bridge: str, stream: str, recorded: Owner, caller: Owner) -> None:
    """Check that `caller` may open a stream whose positions are `recorded`'s.

    Callers with every right, and the node itself, act for every user; no caller acts for another node.

    Raises:
        TargetRefused: it may not.
    """
    same_node = not recorded.node or recorded.node == caller.node or caller.principal == THIS_NODE
    trusted = caller.principal in (EVERY_RIGHT, THIS_NODE)
    if not recorded.principal or (same_node and (trusted or recorded.principal == caller.principal)):
        return
    raise TargetRefused(
        f"NOT_YOURS: what the bridge {bridge} delivered of {stream} belongs to {recorded}; found {caller}. "
        f"`core-bridge forget --owner {bridge}` hands it on, at the node that stores it",
        key="bridge",
        limit=str(recorded),
        found=str(caller),
    )
