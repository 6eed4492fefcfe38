"""The comparison of a running node's settings with those that it is to have, key by key; pure.

`EFFECTS` says of each key of the model whether a change takes effect in place, by restarting the bridges that
use it, or not until the node restarts. A reload is all or nothing: one key of the last kind refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from bridge.runtime.secret_values import HIDDEN, holds_secret
from bridge.settings.addresses import AddressSettingsTable
from bridge.settings.bridges import Bridge
from bridge.settings.fields import Table
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath, render
from bridge.settings.problems import Problem, SettingsInvalid, show
from bridge.settings.schema import table_of


class Effect(Enum):
    """How a reload brings a changed key about; the values are the words of the configuration page."""

    IN_PLACE = "in place"
    BRIDGES = "restarts its bridges"
    RESTART = "needs a restart"


def _rows(table: str, effect: Effect, names: str) -> dict[str, Effect]:
    return {f"{table}.{name}": effect for name in names.split()}


#: The effect of every key, by the table's name (`describe.Section.key`) and its own. A table's own name
#: stands for one that appears or goes.
EFFECTS: Final[Mapping[str, Effect]] = {
    **_rows("node", Effect.IN_PLACE, "shutdown-timeout log-level log-format watch-settings"),
    **_rows("node", Effect.RESTART, "name data-directory workers"),
    "acceptor": Effect.RESTART,
    **_rows("acceptor", Effect.IN_PLACE, "tokens"),
    **_rows(
        "acceptor",
        Effect.RESTART,
        "url certificate key client-ca insecure allowed-origins max-message-size min-large-message-size"
        " max-headers-size max-duplicate-id-size max-requests max-held-requests max-held-size"
        " max-transit-size max-connections call-timeout max-link-size compression max-addresses max-queues",
    ),
    "acceptor.users.*": Effect.IN_PLACE,
    **_rows(
        "acceptor.users.*", Effect.IN_PLACE, "name token certificate-name send receive delete-queues link"
    ),
    "operations": Effect.RESTART,
    **_rows("operations", Effect.IN_PLACE, "tokens"),
    **_rows("operations", Effect.RESTART, "url partition-metrics"),
    **_rows("duplicate-detection", Effect.IN_PLACE, "id-cache-size"),
    **_rows("duplicate-detection", Effect.RESTART, "persist-id-cache"),
    **_rows(
        "delivery-log",
        Effect.RESTART,
        "enabled directory roll-interval roll-size retention-time retention-size kafka-connector kafka-topic",
    ),
    "address-settings.*": Effect.IN_PLACE,
    **_rows(
        "address-settings.*",
        Effect.IN_PLACE,
        "id-cache-size max-size-bytes address-full-policy retain-time auto-create-addresses"
        " auto-create-queues auto-delete-queues auto-delete-queues-delay auto-delete-queues-message-count"
        " auto-delete-queues-skip-usage-check auto-delete-created-queues auto-delete-addresses"
        " auto-delete-addresses-delay auto-delete-addresses-skip-usage-check redistribution-delay",
    ),
    "addresses.*": Effect.IN_PLACE,
    **_rows("addresses.*", Effect.IN_PLACE, "queues"),
    **_rows("addresses.*", Effect.RESTART, "routing-type"),
    "connectors.*": Effect.BRIDGES,
    **_rows("connectors.*", Effect.IN_PLACE, "token"),
    **_rows("connectors.*", Effect.BRIDGES, "url ca certificate key server-name proxy compression identity"),
    "connectors.*.kafka": Effect.BRIDGES,
    **_rows(
        "connectors.*.kafka",
        Effect.BRIDGES,
        "security-protocol ssl-cafile ssl-certfile ssl-keyfile ssl-password ssl-check-hostname sasl-mechanism"
        " sasl-plain-username sasl-plain-password sasl-oauth-token-file",
    ),
    "bridges.*": Effect.BRIDGES,
    **_rows(
        "bridges.*",
        Effect.BRIDGES,
        "name previous-name source-connector queue-name forwarding-address static-connectors failover"
        " fail-back use-duplicate-detection check-producer-ids filter transformer transformer-properties"
        " routing-type concurrency priority retry-interval retry-interval-multiplier max-retry-interval"
        " initial-connect-attempts reconnect-attempts reconnect-attempts-same-node confirmation-window-size"
        " producer-window-size min-large-message-size check-period connection-ttl call-timeout"
        " max-rate schedule"
        " pending-ack-timeout max-delivery-attempts dead-letter-address start-position gap-policy"
        " open-transaction-warn-after preserve-partitions create-topics add-partitions"
        " topic-replication-factor journal-topic journal-replication-factor group-id max-hops",
    ),
    "cluster-connections.*": Effect.RESTART,
    **_rows(
        "cluster-connections.*",
        Effect.RESTART,
        "name address connector-ref static-connectors discovery allow-direct-connections-only"
        " use-duplicate-detection message-load-balancing max-hops reader-timeout retry-interval"
        " retry-interval-multiplier max-retry-interval initial-connect-attempts reconnect-attempts"
        " check-period connection-ttl call-timeout notification-interval notification-attempts"
        " confirmation-window-size producer-window-size min-large-message-size",
    ),
}

#: Tables whose settings are those of addresses in the journal.
_OF_ADDRESSES: Final = ("duplicate-detection", "address-settings", "addresses")


@dataclass(frozen=True, slots=True)
class Change:
    """One key, or one table, that differs."""

    path: KeyPath
    effect: Effect
    #: None: the table is not there.
    before: Any
    after: Any

    @property
    def key(self) -> str:
        """Its name for people: ``connectors.hub.url``, ``bridges.orders-to-hub.filter``."""
        return render(self.path)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a reload, in the order of the new file; none is taken where `refused` has anything."""

    refused: tuple[Change, ...]
    #: What takes effect in place.
    in_place: tuple[Change, ...]
    #: Names of bridges that stop, that start in place of one of their name, and that are new.
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def changes_anything(self) -> bool:
        """Whether the settings differ at all."""
        return bool(self.refused or self.in_place or self.removed or self.changed or self.added)

    @property
    def concerns_addresses(self) -> bool:
        """Whether the journal has other settings of addresses."""
        return any(change.path[0] in _OF_ADDRESSES for change in self.in_place)


def plan(before: Settings, after: Settings) -> Plan:
    """Compare the settings of a running node with those that it is to have.

    A bridge is changed where a key of its own is, or of a connector that it names, or where an address that
    it reads begins or ceases to be declared: a name in `queue-name` may mean a queue then.
    """
    changes = list(_differences(before, after, (), ""))
    refused = [change for change in changes if change.effect is Effect.RESTART]
    at_connectors = [
        change for change in changes if change.path[0] == "connectors" and change.effect is Effect.BRIDGES
    ]
    connectors = {change.path[1] for change in at_connectors}
    fixed = _fixed_connectors(before)
    refused += [change for change in at_connectors if change.path[1] in fixed]
    old = {bridge.name: bridge for bridge in before.bridges}
    new = {bridge.name: bridge for bridge in after.bridges}
    caches = any(_sizes_caches(change) for change in changes)

    def differs(name: str) -> bool:
        one, other = old[name], new[name]
        return (
            one != other
            or not connectors.isdisjoint((other.source_connector, *other.static_connectors))
            or (other.reads_journal and _declared(one, before) != _declared(other, after))
            or (caches and _keeps_caches(other, after))
        )

    return Plan(
        tuple(refused),
        tuple(change for change in changes if change.effect is Effect.IN_PLACE),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and differs(name)),
        added=tuple(name for name in new if name not in old),
    )


class SettingsRefused(SettingsInvalid):
    """The settings hold, and change what cannot change while the node runs: nothing was changed."""

    code = "SETTINGS_REFUSED"

    @classmethod
    def of(cls, file: str, refused: tuple[Change, ...]) -> SettingsRefused:
        """The error about these changes; `file` as the user named it."""
        rule = "cannot change while the node runs (restart it); it has"
        return cls(
            [
                Problem(
                    file, change.key, f"{rule} {_shown(change, change.before)}", _shown(change, change.after)
                )
                for change in refused
            ]
        )


def _shown(change: Change, value: Any) -> str:
    if value and holds_secret(str(change.path[-1]), str(value)):
        return HIDDEN
    return "a table" if isinstance(value, Table) else show(value)


def _fixed_connectors(settings: Settings) -> set[str]:
    """Connectors that something besides bridges uses, which does not change while the node runs."""
    used = {settings.delivery_log.kafka_connector}
    for connection in settings.cluster_connections:
        used |= {connection.connector_ref, *connection.static_connectors}
    return used


def _declared(bridge: Bridge, settings: Settings) -> list[str]:
    return [name for name in bridge.plain_addresses if name in settings.addresses]


def _sizes_caches(change: Change) -> bool:
    """Whether it is the size of ID caches, or a pattern with one that comes or goes."""
    patterns = [table for table in (change.before, change.after) if isinstance(table, AddressSettingsTable)]
    return change.path[-1] == "id-cache-size" or any(table.id_cache_size is not None for table in patterns)


def _keeps_caches(bridge: Bridge, settings: Settings) -> bool:
    """Whether the bridge itself keeps the IDs that its target knows, and not a journal."""
    rules = settings.end_rules(bridge.static_connectors[0])
    return not (rules.is_own or rules.is_node)


# -- the comparison -----------------------------------------------------------------------------------------


def _differences(before: Table, after: Table, path: KeyPath, section: str) -> Iterator[Change]:
    """Every key of two tables of one kind that differs, tables within them by their names."""
    for attribute, field in type(after).model_fields.items():
        key = field.alias or attribute
        place, name = (*path, key), f"{section}.{key}" if section else key
        one, other = getattr(before, attribute), getattr(after, attribute)
        table, many = table_of(field)
        if one == other:
            continue
        if table is None:
            yield Change(place, EFFECTS[name], one, other)
        elif many is None:
            yield from _between(one, other, place, name)
        else:
            ones, others = _named(one), _named(other)
            for item in (*ones, *(item for item in others if item not in ones)):
                yield from _between(ones.get(item), others.get(item), (*place, item), f"{name}.*")
    one_extra, other_extra = before.model_extra or {}, after.model_extra or {}
    for key in sorted(one_extra.keys() | other_extra.keys()):
        if one_extra.get(key) != other_extra.get(key):
            yield Change((*path, key), EFFECTS[section], one_extra.get(key), other_extra.get(key))


def _between(one: Table | None, other: Table | None, path: KeyPath, section: str) -> Iterator[Change]:
    if one is None or other is None:
        if one is not other:
            yield Change(path, EFFECTS[section], one, other)
    else:
        yield from _differences(one, other, path, section)


def _named(tables: Mapping[str, Table] | tuple[Any, ...]) -> Mapping[str, Table]:
    """The tables of a list by their names."""
    return tables if isinstance(tables, Mapping) else {table.name: table for table in tables}
