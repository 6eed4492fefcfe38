"""The fields of a message that are no properties, by the names that conditions give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bridge.filters.values import Long, Value


@dataclass(frozen=True, slots=True)
class System:
    """A message's own fields. The defaults are those of a message that has none of them."""

    #: 0 to 9.
    priority: int = 4
    durable: bool = True
    #: Milliseconds since the epoch; 0 where there is none.
    timestamp: int = 0
    #: Milliseconds since the epoch; 0: never.
    expiration: int = 0
    #: Bytes of the encoded message.
    size: int = 0
    #: ``ID:`` and a UUID.
    user_id: str | None = None
    address: str | None = None
    group_id: str | None = None


#: The fields of a message that sets none of them.
NO_SYSTEM: Final = System()

#: By name, what a field's value is. None: the message has none, and a property of the name counts.
FIELDS: Final[dict[str, Callable[[Any], Value]]] = {
    "AMQPriority": lambda system: system.priority,
    "AMQDurable": lambda system: "DURABLE" if system.durable else "NON_DURABLE",
    "AMQTimestamp": lambda system: Long(system.timestamp),
    "AMQExpiration": lambda system: Long(system.expiration),
    "AMQSize": lambda system: system.size,
    "AMQUserID": lambda system: system.user_id,
    "AMQAddress": lambda system: system.address,
    "AMQGroupID": lambda system: system.group_id,
    # Artemis stores the group as this property.
    "_AMQ_GROUP_ID": lambda system: system.group_id,
}

#: The fields that every message of the bridge has.
ALWAYS_THERE: Final = frozenset(
    {"AMQPriority", "AMQDurable", "AMQTimestamp", "AMQExpiration", "AMQSize", "AMQAddress"}
)
