"""The keys of Artemis's broker.xml and their counterparts here: one table, for `core-bridge migrate`, for the
problems of a settings file, and for HTTP's answers.

Each element of Artemis's schema is there once: it is carried over to a key of the settings, or has an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bridge.settings.artemis.addresses import ADDRESS, ADDRESS_SETTING, QUEUE
from bridge.settings.artemis.core import CORE
from bridge.settings.artemis.keys import ArtemisKey, Form, Rows
from bridge.settings.artemis.links import (
    ACCEPTOR,
    BRIDGE,
    CLUSTER_CONNECTION,
    CONNECTOR,
    DIVERT,
    SSL_ENABLED,
    TUNING,
    is_about_tls,
)

__all__ = [
    "QUEUE_ANSWERS",
    "SCOPES",
    "SSL_ENABLED",
    "TUNING",
    "ArtemisKey",
    "Form",
    "Rows",
    "answer_to_key",
    "answer_to_value",
    "is_about_tls",
]

#: The rows below each element of broker.xml, by its name.
SCOPES: Final[Mapping[str, Rows]] = {
    "core": CORE,
    "acceptor": ACCEPTOR,
    "connector": CONNECTOR,
    "address-setting": ADDRESS_SETTING,
    "address": ADDRESS,
    "queue": QUEUE,
    "bridge": BRIDGE,
    "cluster-connection": CLUSTER_CONNECTION,
    "divert": DIVERT,
}

#: The rows whose names may be written by mistake in a table of the settings, by its name; first come first.
_BELOW: Final[Mapping[str, tuple[Rows, ...]]] = {
    "node": (CORE,),
    "duplicate-detection": (CORE,),
    "acceptor": (ACCEPTOR, CORE),
    "connectors": (CONNECTOR,),
    "address-settings": (ADDRESS_SETTING, QUEUE),
    "addresses": (QUEUE, ADDRESS, ADDRESS_SETTING),
    "bridges": (BRIDGE, DIVERT),
    "cluster-connections": (CLUSTER_CONNECTION,),
}

#: What stands for a key of a queue, by the key.
QUEUE_ANSWERS: Final[Mapping[str, str]] = {name: row.answer for name, row in QUEUE.items() if row.answer}


def answer_to_key(table: str, key: str) -> str | None:
    """The text for a key that the settings do not have in this table; None: it is none of Artemis's.

    `table` is the first step of its path, empty for a key at the top of the file.
    """
    for rows in _BELOW.get(table, (CORE,)):
        row = rows.get(key)
        if row is not None and (row.answer or row.becomes != key):
            return row.here
    return None


def answer_to_value(table: str, key: str, value: object) -> str | None:
    """The text for a value of Artemis's that a key does not take here; None: there is none."""
    rows = _BELOW.get(table, (CORE,))[0]
    return rows[key].values.get(str(value)) if key in rows else None
