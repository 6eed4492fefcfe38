"""Names of streams: their sources and kinds, of which two send messages again on purpose (rule 4). Pure.

A dead letter that is replayed is stored at an address of the node's own, ``$replay/<bridge>/<address>``,
which only that bridge reads. So no other reader of the source address gets it a second time, and the bridge
delivers it once, by the position in this stream, whatever IDs the target knows.

Messages that a bridge takes out of a queue that others read, too, are moved to an address of the node's own,
``$bridge.<bridge>/<address>``, which only that bridge reads: what a lease returns gets a new position there,
so that positions ascend as on every stream.

Messages that a cluster has placed at another node wait in a forward log, ``$sf.<node UUID>/<address>``, which
only the bridge to that node reads.

The part of a stream that a replay plan names is the stream ``<stream>:replay:<plan>`` (with ``--force``:
``<stream>:replay:<plan>:force``). Its positions are those of the stream, so that the delivery log can be
compared with it; the target's `next` of it says how far the plan has been sent.

The dead letters of a stream are the stream ``<stream>:dead-letters``, with positions of its own.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from dedup.replay_plan import FORCED, NAME_DIGITS

#: Prefix of the name of every such address. No bridge's and no address's name has a slash.
PREFIX: Final = "$replay/"
#: Prefix of the names of bridges' own logs.
OWN_LOG_PREFIX: Final = "$bridge."
#: Prefix of the names of forward logs.
FORWARD_PREFIX: Final = "$sf."
#: Ends the identity of the stream that a stream's dead letters are (`bridge.relay.dead_letters`).
LETTERS: Final = ":dead-letters"

_PLANNED: Final = re.compile(
    rf"(?P<stream>.+):replay:[0-9a-f]{{{NAME_DIGITS}}}(?P<force>{FORCED})?", re.DOTALL
)


class StreamKind(Enum):
    """The kinds of streams, by the messages in them."""

    #: A source's messages, in the order in which it has them.
    MESSAGES = "messages"
    #: The dead letters of another stream.
    DEAD_LETTERS = "dead letters"
    #: Messages of dead letters, which their bridge sends again.
    RESENT_LETTERS = "resent letters"
    #: Messages that a replay plan sends again unless the target has them.
    PLAN = "plan"
    #: Messages that a replay plan sends again although the target may have them.
    FORCED_PLAN = "forced plan"

    @property
    def checks_ids(self) -> bool:
        """Whether a target looks producers' IDs up: not where known IDs come again on purpose."""
        return self not in (StreamKind.RESENT_LETTERS, StreamKind.FORCED_PLAN)


def kind_of_stream(identity: str) -> StreamKind:
    """The kind of a stream, from its identity."""
    if identity.endswith(LETTERS):
        return StreamKind.DEAD_LETTERS
    planned = _PLANNED.fullmatch(identity)
    if planned is not None:
        return StreamKind.PLAN if planned["force"] is None else StreamKind.FORCED_PLAN
    return StreamKind.RESENT_LETTERS if f":{PREFIX}" in identity else StreamKind.MESSAGES


def is_set_aside(identity: str) -> bool:
    """Whether the stream's messages wait at an address that only their bridge reads: they have passed its
    filter.
    """
    return f":{PREFIX}" in identity or f":{OWN_LOG_PREFIX}" in identity


def journal_stream(incarnation: str, address: str, first: int) -> str:
    """The identity of the stream of a journal's address that begins at position `first`."""
    return f"journal:{incarnation}:{address}:{first}"


def source_of(identity: str) -> str:
    """The source of a stream, from its identity: ``journal:<incarnation>`` or ``kafka:<cluster id>``."""
    return ":".join(identity.split(":", 2)[:2])


def replay_address(bridge: str, address: str) -> str:
    """The address of messages that `bridge` has to send again as if they came from `address`."""
    return f"{PREFIX}{bridge}/{address}"


def own_log(bridge: str, address: str) -> str:
    """The address of messages that `bridge` has taken out of queues of `address`."""
    return f"{OWN_LOG_PREFIX}{bridge}/{address}"


def is_own_log(address: str) -> bool:
    """Whether an address is a bridge's own log."""
    return address.startswith(OWN_LOG_PREFIX)


def forward_log(node: str, address: str) -> str:
    """The address of messages of `address` that wait for the node with this UUID."""
    return f"{FORWARD_PREFIX}{node}/{address}"


def is_forward_log(address: str) -> bool:
    """Whether an address holds messages that wait for another node of a cluster."""
    return address.startswith(FORWARD_PREFIX)


def first_position(identity: str) -> int | None:
    """The first position of a forward log's stream, which its identity names; None: it is no such stream.

    A target that has never seen one begins there, and not at its first batch: so a first batch that was not
    taken cannot be overtaken by the second.
    """
    if f":{FORWARD_PREFIX}" not in identity or kind_of_stream(identity) is not StreamKind.MESSAGES:
        return None
    first = identity.rpartition(":")[2]
    return int(first) if first.isascii() and first.isdigit() else None


def forwarded_address(identity: str) -> str | None:
    """The address whose messages a forward log's stream has; None: it is no such stream."""
    log = identity.rpartition(":")[0].partition(f":{FORWARD_PREFIX}")[2]
    return log.partition("/")[2] or None


def source_address(address: str) -> str:
    """The address that messages at `address` came from: itself, unless they wait there for one bridge."""
    waits = address.startswith((PREFIX, OWN_LOG_PREFIX, FORWARD_PREFIX))
    return address.rpartition("/")[2] if waits else address


def plan_stream(stream: str, plan: str, *, force: bool) -> str:
    """The identity under which a plan's part of `stream` is sent.

    `plan`: its name, 16 digits (`dedup.replay_plan.Plan.name`).
    """
    return f"{stream}:replay:{plan}{FORCED if force else ''}"


def planned_stream(identity: str) -> str | None:
    """The stream whose messages a plan sends again under `identity`; None: it is no plan's."""
    found = _PLANNED.fullmatch(identity)
    return None if found is None else found["stream"]
