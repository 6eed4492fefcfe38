"""How often the neighbours are told what has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cluster.exchange import Exchange
from tests.unit.cluster.rig import A, B, run_of, topology


def test_a_change_of_this_node_is_told_as_often_as_the_settings_say() -> None:
    """`notification-attempts`."""
    for attempts in (1, 3):
        exchange = Exchange(topology(A), run_of(A, 1), lambda: None, attempts)
        told: list[bytes] = []

        def notify(body: bytes, told: list[bytes] = told) -> bool:
            told.append(body)
            return True

        exchange.conversation(outgoing=False).connected(notify, cast(Any, SimpleNamespace(node_id=B)))
        told.clear()
        exchange.changed([A])
        for _ in range(attempts + 2):
            exchange.tell_changes()
        assert len(told) == attempts
