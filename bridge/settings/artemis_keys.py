"""Keys of Artemis's addresses and queues that have no counterpart here, and what stands for them. Pure."""

from __future__ import annotations

from typing import Final

_EXCLUSIVE: Final = "there are no exclusive queues: a bridge, or a single reader, keeps the order"
_LAST_VALUE: Final = "there are no last-value queues: a compacted Kafka topic keeps the last value of a key"
_BROWSE: Final = "a browser, GET /v1/addresses/{a}/messages, reads and leaves messages where they are"
_TYPE: Final = "routing-type of [addresses.NAME] says it; addresses made by a send are MULTICAST"

#: By key.
ANSWERS: Final = {
    "exclusive": _EXCLUSIVE,
    "default-exclusive-queue": _EXCLUSIVE,
    "last-value": _LAST_VALUE,
    "last-value-key": _LAST_VALUE,
    "default-last-value-queue": _LAST_VALUE,
    "default-last-value-key": _LAST_VALUE,
    "non-destructive": _BROWSE,
    "default-non-destructive": _BROWSE,
    "default-address-routing-type": _TYPE,
    "default-queue-routing-type": _TYPE,
    "durable": "every queue is durable",
    "max-consumers": "a queue has any number of readers, up to 1,000 leases",
    "purge-on-no-consumers": "a queue keeps its messages; DELETE deletes it",
}
