"""Rules between keys: references, equal names, the protection of an open listener, the keys that a URL rules
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bridge.ends import JOURNAL
from bridge.messages.addresses import QueueName
from bridge.runtime.proxies import DIRECT, ProxyInvalid
from bridge.settings import names
from bridge.settings.bridges import Bridge
from bridge.settings.clusters import ClusterConnection
from bridge.settings.connectors import Connector
from bridge.settings.end_rules import EndRules
from bridge.settings.fields import MOST_CALLERS, Table, key_of
from bridge.settings.idle_keys import idle, missing
from bridge.settings.listeners import Acceptor, Operations
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath, render
from bridge.settings.prefixes import Prefixes
from bridge.settings.problems import Finding, nearest, show
from bridge.settings.units import NEVER

_CLIENT_CA: Final = ("acceptor", "client-ca")
#: Keys that only some kinds of end use, by their attributes, and what they need.
_OF_CONNECTORS: Final = {
    "token": "needs a ws:// or wss:// URL",
    "ca": "needs a wss:// URL",
    "certificate": "needs a wss:// URL",
    "key": "needs a wss:// URL",
    "server_name": "needs a wss:// URL",
    "proxy": "needs a ws:// or wss:// URL",
    "compression": "needs a ws:// or wss:// URL; Kafka's is compression-type below kafka",
    "identity": "needs a kafka:// URL",
    "kafka": "needs a kafka:// URL",
}
_OF_SOURCES: Final = dict.fromkeys(
    ("start_position", "group_id", "open_transaction_warn_after_ms", "add_partitions"),
    "needs a Kafka source",
)
_OF_TARGETS: Final = {
    **dict.fromkeys(
        (
            "preserve_partitions",
            "create_topics",
            "add_partitions",
            "topic_replication_factor",
            "journal_topic",
            "journal_replication_factor",
        ),
        "needs a Kafka target",
    ),
    **dict.fromkeys(("check_period_ms", "connection_ttl_ms"), "needs a ws:// or wss:// target"),
}


def check_proxies(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about variables of the environment that name the proxy of a connector and do not hold."""
    clustered = {
        name for one in settings.cluster_connections for name in (one.connector_ref, *one.static_connectors)
    }
    for name, connector in settings.connectors.items():
        if not connector.end_rules.is_node:
            continue
        try:
            connector.proxy_to(connector.url, environ)
            if name in clustered:  # it leads to other nodes, too, each at its own URL
                for scheme in ("ws", "wss"):
                    connector.proxy_to(f"{scheme}://node.invalid:1", environ)
        except ProxyInvalid as error:
            rule = f'{error}; proxy = "{DIRECT}" uses none'
            yield Finding(("connectors", name, "proxy"), rule, found="another text")


def check(settings: Settings) -> Iterator[Finding]:
    """Every rule between keys that is broken."""
    if settings.acceptor is not None:
        yield from _acceptor(settings.acceptor)
    if settings.operations is not None:
        yield from _operations(settings.operations)
    yield from _addresses(settings)
    for name, connector in settings.connectors.items():
        yield from _connector(("connectors", name), name, connector)
    yield from _unique(("bridges",), "name", [bridge.name for bridge in settings.bridges])
    for index, bridge in enumerate(settings.bridges):
        yield from _bridge(("bridges", index), bridge, settings)
    yield from _previous_names(settings)
    yield from _workers(settings)
    yield from _delivery_log(settings)
    for rules in dict.fromkeys(rules for bridge in settings.bridges for rules in _kinds(bridge, settings)):
        yield from rules.check_bridges(settings)
    clusters = settings.cluster_connections
    yield from _unique(("cluster-connections",), "name", [cluster.name for cluster in clusters])
    for index, cluster in enumerate(clusters):
        yield from _cluster(("cluster-connections", index), cluster, settings)
    yield from _overlaps(clusters)
    yield from _notices(clusters)


# ---------------------------------------------------------------- listeners


def _acceptor(acceptor: Acceptor) -> Iterator[Finding]:
    path: KeyPath = ("acceptor",)
    tls = acceptor.endpoint.scheme == "wss"
    yield from _certificate_pair(path, acceptor)
    if tls and acceptor.certificate is None:
        yield Finding((*path, "certificate"), "required with a wss:// URL", leans_on=((*path, "url"),))
    if not tls:
        yield from _unused(path, acceptor, "needs a wss:// URL", "certificate", "key", "client-ca")
    if not acceptor.endpoint.loopback:
        if not tls and not acceptor.insecure:
            rule = "off loopback must be wss://, or insecure = true if TLS is ended elsewhere"
            yield Finding((*path, "url"), rule, leans_on=((*path, "insecure"),))
        if not acceptor.tokens and not acceptor.users and acceptor.client_ca is None:
            rule = "required off loopback, unless there are users or a client-ca"
            leans_on = ((*path, "url"), (*path, "users"), (*path, "client-ca"))
            yield Finding((*path, "tokens"), rule, leans_on=leans_on)
    yield from _users((*path, "users"), acceptor)


def _users(path: KeyPath, acceptor: Acceptor) -> Iterator[Finding]:
    yield from _unique(path, "name", [user.name for user in acceptor.users])
    owners = dict.fromkeys(acceptor.tokens, "acceptor.tokens")
    for index, user in enumerate(acceptor.users):
        place = (*path, index)
        if not user.token and not user.certificate_name:
            leans_on = ((*place, "certificate-name"),)
            yield Finding((*place, "token"), "required, or certificate-name", leans_on=leans_on)
        if user.token in owners:
            yield Finding((*place, "token"), f"must be the user's own; {owners[user.token]} has the same")
        if user.token:
            owners[user.token] = render(place)
        if user.certificate_name and acceptor.client_ca is None:
            yield Finding((*place, "certificate-name"), "needs acceptor.client-ca", leans_on=(_CLIENT_CA,))


def _operations(operations: Operations) -> Iterator[Finding]:
    if not operations.endpoint.loopback and not operations.tokens:
        yield Finding(("operations", "tokens"), "required off loopback", leans_on=(("operations", "url"),))


def _certificate_pair(path: KeyPath, table: Acceptor | Connector) -> Iterator[Finding]:
    if table.certificate is not None and table.key is None:
        yield Finding((*path, "key"), "required with certificate", leans_on=((*path, "certificate"),))
    if table.key is not None and table.certificate is None:
        yield Finding((*path, "certificate"), "required with key", leans_on=((*path, "key"),))


# ---------------------------------------------------------------- addresses and connectors


def _addresses(settings: Settings) -> Iterator[Finding]:
    for pattern in settings.address_settings:
        yield from _name(("address-settings", pattern), names.check_pattern)
    for name, address in settings.addresses.items():
        yield from _name(("addresses", name), names.check_user_name)
        queues = ("addresses", name, "queues")
        if address.queues and address.routing_type == "ANYCAST":
            yield Finding(
                queues, "must be empty with routing-type ANYCAST, whose one queue has the address's name"
            )
        yield from _unique(queues, None, [queue.name for queue in address.queues])


def _connector(path: KeyPath, name: str, connector: Connector) -> Iterator[Finding]:
    yield from _name(path, names.check_name)
    if name == JOURNAL:
        yield Finding(path, "must have another name, because this one is the node's own", found=show(name))
    yield from _certificate_pair(path, connector)
    rules = connector.end_rules
    used = rules.used_keys(connector).connector
    for attribute, rule in _OF_CONNECTORS.items():
        if attribute not in used:
            yield from _unused(path, connector, rule, key_of(attribute))
    yield from rules.check_connector(path, connector)


def _unused(path: KeyPath, table: Table, rule: str, *keys: str) -> Iterator[Finding]:
    """Keys that have no effect with the connector's URL."""
    for key in keys:
        attribute = key.replace("-", "_")
        value = getattr(table, attribute)
        if value and value != type(table).model_fields[attribute].default:
            yield Finding((*path, key), rule, leans_on=((*path, "url"),))


# ---------------------------------------------------------------- bridges and clusters


def _previous_names(settings: Settings) -> Iterator[Finding]:
    """Check that a previous name is adopted by one bridge only, and that no bridge has it any more."""
    names_now = {bridge.name for bridge in settings.bridges}
    adopted: dict[str, str] = {}
    for index, bridge in enumerate(settings.bridges):
        before = bridge.previous_name
        if not before:
            continue
        path: KeyPath = ("bridges", index, "previous-name")
        if before in names_now:
            yield Finding(path, "must be a name that no bridge has any more")
        elif before in adopted:
            yield Finding(path, f"must be adopted by one bridge only; {adopted[before]} does")
        adopted.setdefault(before, bridge.name)


def _bridge(path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
    source = bridge.source_connector
    if not settings.has_end(source):
        yield from _reference((*path, "source-connector"), source, settings)
    rules = _rules(source, settings)
    if rules is not None and rules.no_source:
        yield Finding((*path, "source-connector"), rules.no_source)
    for index, target in enumerate(bridge.static_connectors):
        if not settings.has_end(target):
            yield from _reference((*path, "static-connectors", index), target, settings)
        rules = _rules(target, settings)
        if rules is not None and rules.no_target:
            yield Finding((*path, "static-connectors", index), rules.no_target)
    yield from _unique((*path, "static-connectors"), None, bridge.static_connectors)
    yield from _failover(path, bridge, settings)
    if all(selector.startswith("!") for selector in bridge.queue_names):
        yield Finding((*path, "queue-name"), "must name something, not only exclude")
    yield from _shared_queues((*path, "queue-name"), bridge, settings)
    if not bridge.transformer:
        unused = ("transformer_properties", "max_delivery_attempts")
        yield from idle(path, bridge, unused, "needs a transformer", "transformer")
    yield from _idle_at_source(path, bridge, settings)
    yield from _idle_at_target(path, bridge, settings)
    for rules in _kinds(bridge, settings):
        yield from rules.check_bridge(path, bridge, settings)


def _failover(path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
    """Check the keys of bridges that have several connectors, or change their store."""
    rules = _rules(bridge.static_connectors[0], settings)
    if rules is not None and not rules.is_node:
        yield from idle(path, bridge, ["failover"], "needs a target that is a node", "static-connectors")
    several, tried = ("fail_back", "reconnect_attempts_same_node"), bridge.reconnect_attempts
    if len(bridge.static_connectors) == 1:
        yield from idle(path, bridge, several, "needs several static-connectors", "static-connectors")
    elif several[1] in bridge.model_fields_set and 0 <= tried < bridge.reconnect_attempts_same_node:
        rule = f"must be at most reconnect-attempts ({tried}), or -1: the other connectors are never tried"
        place = (*path, "reconnect-attempts-same-node")
        yield Finding(place, rule, leans_on=((*path, "reconnect-attempts"),))


def _shared_queues(path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
    """Check the queues that `queue-name` names with their addresses."""
    holders = {queue.name: name for name, address in settings.addresses.items() for queue in address.queues}
    for name in bridge.shared_queues:
        if not bridge.reads_journal:
            rule = "must name a topic; an address::queue needs the source-connector journal"
            yield Finding(path, rule, found=show(str(name)))
        elif name.address in settings.addresses:
            declared = settings.addresses[name.address]
            if declared.routing_type == "ANYCAST" and name.queue != name.address:
                own = QueueName(name.address, name.address)
                rule = f"must be {own}: an ANYCAST address has one queue, of its name"
                yield Finding(path, rule, found=show(str(name)))
        elif name.queue in holders:
            rule = f"must name the queue's address: {QueueName(holders[name.queue], name.queue)}"
            yield Finding(path, rule, found=show(str(name)))


def _idle_at_source(path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
    """Keys that the bridge's source does not use."""
    rules = _rules(bridge.source_connector, settings)
    if rules is None or rules.no_source:  # a connector that is no source is reported itself
        return
    used = rules.used_keys(settings.connectors.get(bridge.source_connector)).source
    for attribute, rule in _OF_SOURCES.items():
        if attribute not in used:
            yield from idle(path, bridge, [attribute], rule, "source-connector")
    most = MOST_CALLERS if rules.is_own else 1
    if bridge.concurrency > most and not rules.has_lanes:
        rule = f"must be at most {most}, because only Kafka sources have lanes"
        yield missing(path, "concurrency", rule, "source-connector")


def _idle_at_target(path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
    """Keys that the bridge's target does not use, and those of its link against each other."""
    target = bridge.static_connectors[0]
    rules = _rules(target, settings)
    if rules is None:  # the connector is reported itself, and may be a node's
        yield from _link_times(path, bridge)
        return
    used = rules.used_keys(settings.connectors.get(target)).target
    for attribute, rule in _OF_TARGETS.items():
        if attribute not in used:
            for finding in idle(path, bridge, [attribute], rule, "static-connectors"):
                yield replace(finding, leans_on=(*finding.leans_on, ("connectors", target, "url")))
    if "connection_ttl_ms" in used:
        yield from _link_times(path, bridge)
    if not (bridge.reads_journal or bridge.transformer or "call_timeout_ms" in used):
        rule = "needs the source-connector journal, a ws:// or wss:// target, or a transformer"
        yield from idle(path, bridge, ["call_timeout_ms"], rule, "source-connector", "static-connectors")


def _rules(connector: str, settings: Settings) -> EndRules | None:
    """The rules of the end that a bridge names; None where there is no such connector."""
    return settings.end_rules(connector) if settings.has_end(connector) else None


def _kinds(bridge: Bridge, settings: Settings) -> Iterable[EndRules]:
    """The rules of all its ends, each kind once."""
    found = (_rules(name, settings) for name in (bridge.source_connector, *bridge.static_connectors))
    return dict.fromkeys(rules for rules in found if rules is not None)


def _cluster(path: KeyPath, cluster: ClusterConnection, settings: Settings) -> Iterator[Finding]:
    yield from _link_times(path, cluster)
    yield from _node_connector((*path, "connector-ref"), cluster.connector_ref, settings)
    for index, connector in enumerate(cluster.static_connectors):
        yield from _cluster_target((*path, "static-connectors", index), connector, settings)
    yield from _unique((*path, "static-connectors"), None, cluster.static_connectors)
    if not cluster.static_connectors and not cluster.discovery:
        leans_on = ((*path, "discovery"),)
        yield Finding((*path, "static-connectors"), "required, or discovery", leans_on=leans_on)


def _node_connector(path: KeyPath, name: str, settings: Settings) -> Iterator[Finding]:
    yield from _reference(path, name, settings)
    if name in settings.connectors and not settings.connectors[name].end_rules.is_node:
        yield Finding(path, "must be a ws:// or wss:// connector")


def _cluster_target(path: KeyPath, name: str, settings: Settings) -> Iterator[Finding]:
    """Check a first contact, or a target to fan out to."""
    yield from _reference(path, name, settings)
    if name in settings.connectors and (rule := settings.connectors[name].end_rules.no_target):
        yield Finding(path, rule)


def _overlaps(clusters: Sequence[ClusterConnection]) -> Iterator[Finding]:
    """Check that an address belongs to one cluster connection at most (semantics.md C16)."""
    prefixes = [Prefixes.of(cluster.address) for cluster in clusters]
    for index, mine in enumerate(prefixes):
        for before, its in enumerate(prefixes[:index]):
            common = mine.common(its)
            if common is not None:
                shown = f"those that begin with {show(common)}" if common else "all that neither excludes"
                place = render(("cluster-connections", before, "address"))
                path: KeyPath = ("cluster-connections", index, "address")
                yield Finding(path, f"must share no address with {place}; both have {shown}")
                break


def _notices(clusters: Sequence[ClusterConnection]) -> Iterator[Finding]:
    """Check that all agree on how often the others are told of this node: it tells them once for all."""
    for index, cluster in enumerate(clusters[1:], start=1):
        for attribute in ("notification_interval_ms", "notification_attempts"):
            first, value = getattr(clusters[0], attribute), getattr(cluster, attribute)
            if value != first:
                path: KeyPath = ("cluster-connections", index, key_of(attribute))
                rule = f"must be that of {render(('cluster-connections', 0))}, {first}: a node has one"
                found = None if attribute in cluster.model_fields_set else f"{value} (the default)"
                yield Finding(path, rule, found=found)


def _workers(settings: Settings) -> Iterator[Finding]:
    """Check that worker processes have a bridge to serve; an end that is not known may be theirs."""
    if settings.node.workers == 1:
        return
    for bridge in settings.bridges:
        ends = [_rules(name, settings) for name in (bridge.source_connector, *bridge.static_connectors)]
        if all(rules is None or rules.stands_alone for rules in ends):
            return
    yield Finding(("node", "workers"), "needs a bridge from Kafka to Kafka", leans_on=(("bridges",),))


def _delivery_log(settings: Settings) -> Iterator[Finding]:
    path: KeyPath = ("delivery-log", "kafka-connector")
    log = settings.delivery_log
    name = log.kafka_connector
    if not name:
        yield from idle(path[:1], log, ["kafka_topic"], "needs kafka-connector", "kafka-connector")
        return
    yield from _reference(path, name, settings)
    if name in settings.connectors and not settings.connectors[name].end_rules.takes_log:
        yield Finding(path, "must be a kafka:// connector")
    if not log.enabled:
        yield Finding(path, "needs enabled = true", leans_on=(("delivery-log", "enabled"),))


def _link_times(path: KeyPath, link: Bridge | ClusterConnection) -> Iterator[Finding]:
    check_period, ttl = link.check_period_ms, link.connection_ttl_ms
    if ttl != NEVER and (check_period == NEVER or ttl <= check_period):
        shown = "-1, never" if check_period == NEVER else f"{check_period} ms"
        found = None if "connection_ttl_ms" in link.model_fields_set else f"{ttl} (the default)"
        yield Finding(
            (*path, "connection-ttl"), f"must be longer than check-period ({shown}), or -1", found=found
        )


def _reference(path: KeyPath, name: str, settings: Settings) -> Iterator[Finding]:
    if name not in settings.connectors:
        yield Finding(path, "must be the name of a connector", nearest(name, settings.connectors))


def _name(path: KeyPath, rule: Callable[[str], str]) -> Iterator[Finding]:
    try:
        rule(str(path[-1]))
    except ValueError as error:
        yield Finding(path, f"name {error}", found=show(path[-1]))


def _unique(path: KeyPath, key: str | None, found: Iterable[str]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, name in enumerate(found):
        if name in first:
            place = (*path, index) if key is None else (*path, index, key)
            yield Finding(place, f"must be unique; {render((*path, first[name]))} is the same")
        first.setdefault(name, index)
