"""Names of streams: of their sources, and of those that send messages again on purpose (design rule 4). Pure.

A dead letter that is replayed is stored at an address of the node's own, ``$replay/<bridge>/<address>``,
which only that bridge reads. So no other reader of the source address gets it a second time, and the bridge
delivers it once, by the position in this stream, whatever IDs the target knows.

The part of a stream that a replay plan names is the stream ``<stream>:replay:<plan>`` (with ``--force``:
``<stream>:replay:<plan>:force``). Its positions are those of the stream, so that the delivery log can be
compared with it; the target's `next` of it says how far the plan has been sent.
"""

from __future__ import annotations

import re
from typing import Final

from dedup.replay_plan import FORCED, NAME_DIGITS

#: Prefix of the name of every such address. No bridge's and no address's name has a slash.
PREFIX: Final = "$replay/"

_PLANNED: Final = re.compile(
    rf"(?P<stream>.+):replay:[0-9a-f]{{{NAME_DIGITS}}}(?P<force>{FORCED})?", re.DOTALL
)


def source_of(identity: str) -> str:
    """The source of a stream, from its identity: ``journal:<incarnation>`` or ``kafka:<cluster id>``."""
    return ":".join(identity.split(":", 2)[:2])


def replay_address(bridge: str, address: str) -> str:
    """The address of messages that `bridge` has to send again as if they came from `address`."""
    return f"{PREFIX}{bridge}/{address}"


def source_address(address: str) -> str:
    """The address that messages at `address` came from: itself, unless they wait to be sent again."""
    return address.rpartition("/")[2] if address.startswith(PREFIX) else address


def is_replay(identity: str) -> bool:
    """Whether a stream is one of dead letters sent again on purpose: their IDs are not checked."""
    return f":{PREFIX}" in identity and planned_stream(identity) is None


def plan_stream(stream: str, plan: str, *, force: bool) -> str:
    """The identity under which a plan's part of `stream` is sent.

    `plan`: its name, 16 digits (`dedup.replay_plan.Plan.name`).
    """
    return f"{stream}:replay:{plan}{FORCED if force else ''}"


def planned_stream(identity: str) -> str | None:
    """The stream whose messages a plan sends again under `identity`; None: it is no plan's."""
    found = _PLANNED.fullmatch(identity)
    return None if found is None else found["stream"]


def is_forced(identity: str) -> bool:
    """Whether a plan's stream brings its messages although the target has them."""
    found = _PLANNED.fullmatch(identity)
    return found is not None and found["force"] is not None
