"""Addresses as the settings declare them: at opening, and when the settings change later."""

from __future__ import annotations

import sqlite3

from bridge.errors import Conflict
from bridge.filters import parse
from bridge.journal.rules.bridge_queues import fit_routing_type
from bridge.journal.rules.commands import ConfigureCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.queue_filters import change_filter, make_queue
from bridge.journal.rules.state import AddressState
from bridge.journal.values.options import AddressPolicy


def make_declared(group: Group, connection: sqlite3.Connection) -> None:
    """Make the declared addresses and their queues, as far as they are missing, and let the others have the
    routing types and filters that are declared.

    Raises: JournalFailed: an address cannot have the routing type.
    """
    for name, queues in group.options.addresses.items():
        address = group.state.addresses.get(name) or group.make_address(name)
        fit_routing_type(group, address)
        if address.automatic:
            address.automatic = False
            group.changed_addresses[address.address_id] = address
        conditions = group.options.queue_filters.get(name, {})
        for queue in queues:
            filter_ = parse(conditions.get(queue, ""))
            if queue not in address.queues:
                make_queue(group, connection, address, queue, address.trimmed, filter_)
                continue
            there = address.queues[queue]
            if there.condition != ("" if filter_ is None else filter_.text):
                change_filter(group, connection, address, there, filter_)
            if there.automatic:
                there.automatic = False
                group.change_queue(address, there)


def configure(group: Group, connection: sqlite3.Connection, command: ConfigureCommand) -> None:
    """Let the addresses have other settings; those that are declared no more stay, with their queues.

    In a group of its own (`dispatch`). Raises: Conflict: an address has another routing type than is declared
    for it; nothing changes.
    """
    new = command.options
    for name in new.addresses:
        there, wanted = group.state.addresses.get(name), new.policy(name).routing_type
        if there is not None and there.routing_type != wanted:
            detail = f"{name} is {there.routing_type}, which changes at a start only; found {wanted}"
            key = f"addresses.{name}.routing-type"
            raise Conflict(f"{key}: {detail}", key=key, limit=there.routing_type, found=wanted)
    group.options = group.options.with_addresses_of(new)
    for address in group.state.addresses.values():
        if not address.deleted:
            _take_policy(group, address, new.policy(address.name))
    make_declared(group, connection)


def _take_policy(group: Group, address: AddressState, policy: AddressPolicy) -> None:
    before, address.policy = address.policy, policy
    group.changed_policies.append(address)
    if before.id_cache_size != policy.id_cache_size:  # an operator's size holds until the settings' changes
        group.change_cache(address, policy.id_cache_size)
        address.id_cache_size = address.id_cache_configured = None
    if (before.retain_time_ms, before.max_size_bytes) != (policy.retain_time_ms, policy.max_size_bytes):
        group.state.retained.pop(address.address_id, None)
        group.state.to_trim.add(address.address_id)
