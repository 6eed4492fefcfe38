"""Where what is sent again on purpose waits for its bridge: a stream of its own (design rule 4). Pure.

A dead letter that is replayed is stored at an address of the node's own, ``$replay/<bridge>/<address>``,
which only that bridge reads. So no other reader of the source address gets it a second time, and the bridge
delivers it once, by the position in this stream, whatever IDs the target knows.
"""

from __future__ import annotations

from typing import Final

#: Begins the name of every such address. A slash is in no bridge's and no address's name.
PREFIX: Final = "$replay/"


def replay_address(bridge: str, address: str) -> str:
    """Where messages wait that `bridge` is to send again as if they came from `address`."""
    return f"{PREFIX}{bridge}/{address}"


def source_address(address: str) -> str:
    """The address that messages at `address` came from: itself, unless they wait to be sent again."""
    return address.rpartition("/")[2] if address.startswith(PREFIX) else address


def is_replay(identity: str) -> bool:
    """Whether a stream is one of messages sent again on purpose: their IDs are not checked."""
    return f":{PREFIX}" in identity
