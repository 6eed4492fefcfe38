"""Rules between the keys of Kafka connectors and of bridges with a Kafka end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bridge.kafka.client.known_options import KAFKA_OPTIONS, OWN_KAFKA_OPTIONS, UNUSABLE_KAFKA_OPTIONS
from bridge.messages.addresses import NAME_LENGTH_MAX
from bridge.runtime.secret_values import HIDDEN
from bridge.settings import names, urls
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Connector, Kafka
from bridge.settings.fields import key_of
from bridge.settings.idle_keys import idle, missing
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath, render
from bridge.settings.problems import Finding, nearest, show
from bridge.settings.selectors import ADDRESS_PLACE

_TLS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname")
_PASSWORD: Final = ("sasl_plain_username", "sasl_plain_password")
_TOKEN: Final = ("sasl_oauth_token_file",)


# ---------------------------------------------------------------- connectors


def check_kafka(path: KeyPath, kafka: Kafka) -> Iterator[Finding]:
    """Yield the errors in `[connectors.NAME.kafka]`."""
    yield from _tls(path, kafka)
    yield from _sasl(path, kafka)
    for key, value in (kafka.model_extra or {}).items():
        yield from _option((*path, key), key, value)


def _tls(path: KeyPath, kafka: Kafka) -> Iterator[Finding]:
    if not kafka.security_protocol.endswith("SSL"):
        yield from idle(path, kafka, _TLS, "needs security-protocol SSL or SASL_SSL", "security-protocol")
        return
    if kafka.ssl_certfile is not None and kafka.ssl_keyfile is None:
        yield missing(path, "ssl-keyfile", "required with ssl-certfile", "ssl-certfile")
    if kafka.ssl_keyfile is not None and kafka.ssl_certfile is None:
        yield missing(path, "ssl-certfile", "required with ssl-keyfile", "ssl-keyfile")
    if kafka.ssl_keyfile is None and kafka.ssl_certfile is None:
        yield from idle(path, kafka, ("ssl_password",), "needs ssl-keyfile", "ssl-keyfile")


def _sasl(path: KeyPath, kafka: Kafka) -> Iterator[Finding]:
    if not kafka.security_protocol.startswith("SASL_"):
        rule = "needs security-protocol SASL_PLAINTEXT or SASL_SSL"
        yield from idle(path, kafka, ("sasl_mechanism", *_PASSWORD, *_TOKEN), rule, "security-protocol")
        return
    by_token = kafka.sasl_mechanism == "OAUTHBEARER"
    needed, useless = (_TOKEN, _PASSWORD) if by_token else (_PASSWORD, _TOKEN)
    for attribute in needed:
        if not getattr(kafka, attribute):
            rule = f"required with sasl-mechanism {kafka.sasl_mechanism}"
            yield missing(path, key_of(attribute), rule, "sasl-mechanism", "security-protocol")
    others = "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512" if by_token else "OAUTHBEARER"
    yield from idle(path, kafka, useless, f"needs sasl-mechanism {others}", "sasl-mechanism")


def _option(path: KeyPath, key: str, value: object) -> Iterator[Finding]:
    known = [*(field.alias or "" for field in Kafka.model_fields.values()), *KAFKA_OPTIONS]
    if key in OWN_KAFKA_OPTIONS:
        yield Finding(path, "must not be set, because the bridge sets it")
    elif key in UNUSABLE_KAFKA_OPTIONS:
        yield Finding(path, f"must not be set, because it {UNUSABLE_KAFKA_OPTIONS[key]}")
    elif key not in KAFKA_OPTIONS:
        meant = nearest(key, known)
        same = meant is not None and key.replace("_", "-").lower() == meant
        # The key may be another client's name for a secret, such as sasl-jaas-config.
        found = HIDDEN if "sasl" in key.lower() or "ssl" in key.lower() else None
        yield Finding(path, "must be written in kebab-case" if same else "unknown key", meant, found)
    else:
        try:
            KAFKA_OPTIONS[key].check(value)
        except ValueError as error:
            yield Finding(path, str(error))


# ---------------------------------------------------------------- one bridge


def check_bridge(path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
    """Yield the errors in a bridge's table that concern Kafka."""
    source, target = _source(bridge, settings), _target(bridge, settings)
    yield from _fail_overs(path, bridge, settings, target)
    if source is not None or (target is not None and not bridge.forwarding_address):
        yield from _topics((*path, "queue-name"), bridge.plain_addresses)
    if target is not None:
        if bridge.forwarding_address:
            forwarded = map(bridge.target_address, bridge.plain_addresses)
            yield from _topics((*path, "forwarding-address"), forwarded)
        yield from _topics((*path, "dead-letter-address"), filter(None, [bridge.dead_letter_address]))
        yield from _journal_topic(path, bridge)
        yield from idle(path, bridge, ["routing_type"], "needs a target that is a node", "static-connectors")
        if not bridge.create_topics:
            unused = ["topic_replication_factor"]
            yield from idle(path, bridge, unused, "needs create-topics = true", "create-topics")
        if not bridge.preserve_partitions:
            unused = ["add_partitions"]
            yield from idle(path, bridge, unused, "needs preserve-partitions = true", "preserve-partitions")
    if source is not None and target is not None and same_cluster(source, target):
        yield from _not_to_itself(path, bridge)


def _fail_overs(
    path: KeyPath, bridge: Bridge, settings: Settings, target: Connector | None
) -> Iterator[Finding]:
    for index, name in enumerate(bridge.static_connectors[1:], start=1):
        if target is not None:
            rule = "must not be there: a Kafka target has no fail-overs, its URL may name several brokers"
            yield Finding((*path, "static-connectors", index), rule)
        elif _kafka(name, settings) is not None:
            yield Finding((*path, "static-connectors", index), "must be a node, because it is a fail-over")


def _topics(path: KeyPath, topics: Iterable[str]) -> Iterator[Finding]:
    """Yield the first topic whose name Kafka does not allow."""
    for topic in topics:
        try:
            names.check_name(topic)
        except ValueError as error:
            yield Finding(path, str(error), found=show(topic))
            return


def _journal_topic(path: KeyPath, bridge: Bridge) -> Iterator[Finding]:
    if len(bridge.own_topic) > NAME_LENGTH_MAX:
        rule = f"required, because {bridge.own_topic} has more than {NAME_LENGTH_MAX} characters"
        yield Finding((*path, "journal-topic"), rule, leans_on=((*path, "name"),))


def _not_to_itself(path: KeyPath, bridge: Bridge) -> Iterator[Finding]:
    """Check that no topic feeds itself: such a bridge would never come to rest."""
    leans_on = tuple((*path, key) for key in ("source-connector", "static-connectors", "queue-name"))
    unchanged = bridge.forwarding_address in ("", ADDRESS_PLACE)
    if unchanged or any(bridge.target_address(name) == name for name in bridge.plain_addresses):
        rule = "must name another topic, because source and target are the same Kafka cluster"
        yield Finding((*path, "forwarding-address"), rule, leans_on=leans_on)
    if bridge.dead_letter_address and bridge.selects_topic(bridge.dead_letter_address):
        rule = "must not be a topic that the bridge reads: exclude it in queue-name"
        yield Finding((*path, "dead-letter-address"), rule, leans_on=leans_on)


# ---------------------------------------------------------------- all bridges


def check_bridges(settings: Settings) -> Iterator[Finding]:
    """Yield the conflicts between bridges: names used twice, journal topics that a bridge reads or writes."""
    yield from _own(settings, "journal-topic", _target, lambda bridge: bridge.own_topic)
    yield from _own(settings, "group-id", _source, lambda bridge: bridge.own_group)
    for index, bridge in enumerate(settings.bridges):
        cluster = _target(bridge, settings)
        if cluster is not None:
            yield from _left_alone(("bridges", index, "journal-topic"), bridge.own_topic, cluster, settings)


def _own(
    settings: Settings,
    key: str,
    end: Callable[[Bridge, Settings], Connector | None],
    name_of: Callable[[Bridge], str],
) -> Iterator[Finding]:
    """Yield a name that another bridge has already; `end` says whether the bridge has any."""
    first: dict[str, int] = {}
    for index, bridge in enumerate(settings.bridges):
        if end(bridge, settings) is None:
            continue
        name = name_of(bridge)
        other = settings.bridges[first.setdefault(name, index)]
        if other is not bridge and other.name != bridge.name:  # equal names are an error of their own
            rule = f"must be the bridge's own; {render(('bridges', first[name]))} has the same"
            leans_on = (("bridges", index, "name"), ("bridges", first[name], key))
            yield Finding(("bridges", index, key), rule, found=show(name), leans_on=leans_on)


def _left_alone(path: KeyPath, topic: str, cluster: Connector, settings: Settings) -> Iterator[Finding]:
    """Check that only its own bridge reads or writes a journal topic (docs/kafka-traps.md 15)."""
    for index, bridge in enumerate(settings.bridges):
        source, target = _source(bridge, settings), _target(bridge, settings)
        reads = source is not None and same_cluster(source, cluster) and bridge.selects_topic(topic)
        written = (*map(bridge.target_address, bridge.plain_addresses), bridge.dead_letter_address)
        writes = target is not None and same_cluster(target, cluster) and topic in written
        if reads or writes:
            rule = f"must not be a topic that {render(('bridges', index))} {'reads' if reads else 'writes'}"
            yield Finding(path, rule, found=show(topic), leans_on=(("bridges", index, "queue-name"),))


# ---------------------------------------------------------------- which cluster


def same_cluster(one: Connector, other: Connector) -> bool:
    """Whether two Kafka connectors lead to one cluster, as far as their URLs show: they share a broker."""
    return not set(urls.brokers(one.url)).isdisjoint(urls.brokers(other.url))


def _source(bridge: Bridge, settings: Settings) -> Connector | None:
    return _kafka(bridge.source_connector, settings)


def _target(bridge: Bridge, settings: Settings) -> Connector | None:
    return _kafka(bridge.static_connectors[0], settings)


def _kafka(name: str, settings: Settings) -> Connector | None:
    """The connector, if it exists and leads to a Kafka cluster."""
    connector = settings.connectors.get(name)
    return connector if connector is not None and connector.url.startswith(urls.KAFKA_SCHEME) else None
