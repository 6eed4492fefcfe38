"""`[addresses.NAME]` and `[address-settings."PATTERN"]`, and the settings that result for an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from bridge.errors import FilterRefused
from bridge.filters import parse
from bridge.messages.addresses import matches
from bridge.settings.fields import (
    CountOrAny,
    CountOrNone,
    Flag,
    SizeBytes,
    Table,
    TimeMs,
    TimeOrNeverMs,
    UserName,
    setting,
)
from bridge.settings.names import specificity

FullPolicy = Literal["BLOCK", "FAIL"]


def _condition(value: str) -> str:
    try:
        parse(value)
    except FilterRefused as refused:
        raise ValueError(f"is refused: {refused}") from None
    return value


class Queue(Table):
    """A queue made at start."""

    name: UserName = setting("The queue's name.")
    filter: Annotated[str, AfterValidator(_condition)] = setting(
        "Condition on the messages that arrive for the queue; empty: all.", ""
    )


def _named(value: object) -> object:
    if not isinstance(value, str | dict | Queue):
        raise ValueError("must be a name in quotes, or a table with name and filter")
    return {"name": value} if isinstance(value, str) else value


class Address(Table):
    """An address made at start."""

    routing_type: Literal["MULTICAST", "ANYCAST"] = setting(
        "MULTICAST: every queue gets every message. ANYCAST: one queue, named like the address, "
        "whose readers take turns.",
        "MULTICAST",
    )
    queues: tuple[Annotated[Queue, BeforeValidator(_named)], ...] = setting(
        "Queues of a MULTICAST address, made at start: names, or tables with name and filter, as in "
        '`{ name = "eu", filter = "region = \'eu\'" }` ([filters](filters.md)). Another filter acts on the '
        "messages that arrive after the next start or reload.",
        (),
    )


class AddressSettingsTable(Table):
    """The settings of one pattern; a key that is not written is left to less specific patterns."""

    id_cache_size: CountOrNone | None = setting(
        "Duplicate IDs remembered per address; 0 turns the check off. No default: unset inherits "
        "[duplicate-detection].",
        None,
    )
    max_size_bytes: SizeBytes = setting(
        "Stored bytes from which the address is full; a message above it is refused.",
        "1GiB",
        alias="max-size-bytes",
    )
    address_full_policy: FullPolicy = setting(
        "BLOCK: senders wait (a POST at most call-timeout). FAIL: they are answered ADDRESS_FULL at once.",
        "BLOCK",
    )
    retain_time_ms: TimeOrNeverMs = setting(
        "Keeps messages that every queue has passed, for replay; -1 for ever.", 0
    )
    auto_create_addresses: Flag = setting("Whether a send makes an address that is not there.", True)
    auto_create_queues: Flag = setting(
        "Whether a reader makes the queue that it names, from the earliest message on.", False
    )
    auto_delete_queues: Flag = setting(
        "Whether an automatic queue goes once it has had a reader, has none, and few enough messages wait. "
        "The queue of an ANYCAST address goes with it.",
        False,
    )
    auto_delete_queues_delay_ms: TimeMs = setting("How long it must be without a reader.", "1m")
    auto_delete_queues_message_count: CountOrAny = setting(
        "Most messages that go with a queue; -1 any number.", 0
    )
    auto_delete_queues_skip_usage_check: Flag = setting(
        "Whether a queue goes that never had a reader, too.", False
    )
    auto_delete_created_queues: Flag = setting(
        "Whether auto-delete-queues holds for queues made by PUT or the settings, too.", False
    )
    auto_delete_addresses: Flag = setting(
        "Whether an automatic address goes, with its duplicate IDs, once it has had a queue, has none, and "
        "holds no message.",
        False,
    )
    auto_delete_addresses_delay_ms: TimeMs = setting("How long it must be without a queue.", "10m")
    auto_delete_addresses_skip_usage_check: Flag = setting(
        "Whether an address goes that never had a queue, too.", False
    )
    redistribution_delay_ms: TimeOrNeverMs = setting(
        "How long a queue without readers waits before its messages go to a node that has some; -1 never.", -1
    )


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The settings of one address, resolved."""

    #: Duplicate IDs remembered; 0: the check is off.
    id_cache_size: int
    max_size_bytes: int
    address_full_policy: FullPolicy
    #: -1: for ever.
    retain_time_ms: int
    auto_create_addresses: bool
    auto_create_queues: bool
    auto_delete_queues: bool
    auto_delete_queues_delay_ms: int
    #: -1: any number.
    auto_delete_queues_message_count: int
    auto_delete_queues_skip_usage_check: bool
    auto_delete_created_queues: bool
    auto_delete_addresses: bool
    auto_delete_addresses_delay_ms: int
    auto_delete_addresses_skip_usage_check: bool
    #: -1: never.
    redistribution_delay_ms: int


def resolve(
    patterns: Mapping[str, AddressSettingsTable], address: str, *, id_cache_size: int
) -> AddressSettings:
    """The settings of `address`, key by key: exact over '*' over '#'.

    Where two patterns are of a kind, the one with more literal words, and then the one with literal words
    further to the left, comes first. `id_cache_size` holds where no pattern sets it.
    """
    values: dict[str, Any] = dict(AddressSettingsTable())
    for pattern in sorted(patterns, key=specificity, reverse=True):
        if matches(pattern, address):
            table = patterns[pattern]
            values.update((name, getattr(table, name)) for name in table.model_fields_set)
    if values["id_cache_size"] is None:
        values["id_cache_size"] = id_cache_size
    return AddressSettings(**values)
