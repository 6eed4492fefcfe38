"""A transformer: amounts in euros, by a rate of the settings; test orders are dropped.

    [[bridges]]
    name = "orders-to-hub"
    queue-name = "orders"
    static-connectors = ["hub"]
    transformer = "in_euros:InEuros"
    transformer-properties = { usd = 0.92, gbp = 1.17 }

The file's directory has to be in Python's path where the node runs:

    PYTHONPATH=examples/transformers core-bridge validate
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bridge.transformers import Message


class InEuros:
    """Made once for each lane of the bridge, with the properties."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._rates = {"eur": 1.0, **{name: float(rate) for name, rate in properties.items()}}

    def __call__(self, message: Message) -> Message | None:
        """Called with one message at a time, in their order. None: the message is dropped."""
        if message.header("test") is not None:
            return None
        order = json.loads(message.body or b"")
        # An unknown currency raises KeyError: the order becomes a dead letter, and the others go on.
        order["amount"] = round(order["amount"] * self._rates[order["currency"]], 2)
        order["currency"] = "eur"
        message.body = json.dumps(order).encode()
        message.set_header("converted", b"true")
        return message
