"""Takes the options of a bridge's life, and its stages, from its settings."""

from __future__ import annotations

import random
from collections.abc import Callable

from bridge.relay.backoff import Backoff
from bridge.relay.relay import RelayOptions
from bridge.relay.stages import LoopGuard, Stage, refuse_large
from bridge.runtime.schedule import Schedule
from bridge.settings.bridges import Bridge
from bridge.transformers.parts import TransformerOptions


def relay_options(bridge: Bridge) -> RelayOptions:
    """The bridge's settings, as far as its life is concerned."""
    return RelayOptions(
        bridge.name,
        Backoff(
            bridge.retry_interval_ms,
            bridge.retry_interval_multiplier,
            bridge.max_retry_interval_ms,
            random.random,
        ),
        initial_connect_attempts=bridge.initial_connect_attempts,
        reconnect_attempts=bridge.reconnect_attempts,
        reconnect_attempts_same_node=bridge.reconnect_attempts_same_node,
        fail_back=bridge.fail_back,
        changes_store=bridge.failover == "at-least-once",
        confirmation_window_size=bridge.confirmation_window_size_bytes,
        producer_window_size=bridge.producer_window_size_bytes,
        priority=bridge.priority,
        pending_ack_timeout_ms=bridge.pending_ack_timeout_ms,
        schedule=Schedule.of(bridge.schedule) if bridge.schedule else None,
    )


def loop_guard(bridge: Bridge, store: Callable[[], str]) -> LoopGuard:
    """The bridge's loop guard; `store` returns the store identity of its source."""
    return LoopGuard(bridge.name, bridge.max_hops, store)


def transformer_options(bridge: Bridge) -> TransformerOptions:
    """The bridge's settings, as far as its transformer is concerned."""
    return TransformerOptions(
        bridge.transformer,
        bridge.batch_bytes,
        bridge.min_large_message_size_bytes,
        bridge.max_delivery_attempts,
        bridge.call_timeout_ms,
        bridge.callers,
    )


def stages(
    bridge: Bridge, passes: Stage | None, store: Callable[[], str], *, whole_bodies: bool
) -> tuple[Stage, ...]:
    """The stages of a bridge, in the order in which each batch passes them; its transformer comes behind.

    Args:
        bridge: of the settings.
        passes: its filter (`bridge.relay.stages.filter_stage`); None: it has none.
        store: returns the store identity of its source.
        whole_bodies: whether it needs bodies whole.
    """
    guard = loop_guard(bridge, store)
    behind = (guard, refuse_large) if whole_bodies else (guard,)
    return behind if passes is None else (passes, *behind)
