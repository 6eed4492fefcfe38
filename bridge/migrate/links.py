"""Artemis's `<bridges>`, `<diverts>` and `<cluster-connections>`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bridge.ends import JOURNAL
from bridge.migrate.addresses import Patterns, Queues
from bridge.migrate.connectors import NOWHERE, PORT
from bridge.migrate.document import Element, Place
from bridge.migrate.draft import Draft, Kind, Table, carry, unknown
from bridge.settings.artemis import SCOPES

_BRIDGES: Final = ("bridges",)
_CLUSTERS: Final = ("cluster-connections",)
#: Where Python transformers are looked for, until a person writes where they are.
_TRANSFORMERS: Final = "transformers"

_UNKNOWN_QUEUE: Final = (
    "broker.xml declares no such queue: the bridge reads the address of this name; address::queue is a queue"
)
_FAILOVER: Final = (
    'another node is another store: failover = "at-least-once" goes on there, and doubles what is in doubt'
)
_TARGET: Final = "the node that the bridge delivers to; broker.xml finds it by discovery"
_DNS: Final = "a DNS name that has an address of each node, and their port, in place of multicast"
_UNKNOWN_ADDRESS: Final = "broker.xml declares no such address: the bridge copies where it is MULTICAST"
_SHARED: Final = (
    "a bridge takes turns with the readers of an ANYCAST address; it copies only of MULTICAST ones"
)
_TAKEN_AWAY: Final = "a divert takes messages away from the queues of the address; a bridge copies them"
_FIRST: Final = "an exclusive divert takes messages away from the others of its address; a bridge copies them"
_ALONE: Final = "it holds as long as the address has no readers: a bridge takes nothing away from them"


@dataclass(frozen=True, slots=True)
class Known:
    """The addresses of broker.xml, as bridges need them."""

    patterns: Patterns
    queues: Queues


def convert_bridges(draft: Draft, bridges: Element, known: Known) -> None:
    """Write `[[bridges]]` for each."""
    for bridge in bridges.children:
        if bridge.name != "bridge":
            draft.general.remark(Kind.LEFT, bridge.place, bridge.name, unknown(bridge.name), bridge.text)
            continue
        name = bridge.attributes.get("name", "")
        table = draft.add(_BRIDGES, f"bridge {name}", bridge.place)
        table.set("name", name, bridge.place)
        _source(table, bridge, known)
        _static_connectors(draft, table, bridge)
        _filter(table, bridge)
        _transformer(table, bridge)
        _concurrency(table, bridge)
        done = {"name", "queue-name", "static-connectors", "filter", "transformer", "transformer-class-name"}
        carry(table, "bridge", bridge, done | {"discovery-group-ref"})


def _source(table: Table, bridge: Element, known: Known) -> None:
    element = bridge.child("queue-name")
    queue, place = (element.text, element.place) if element is not None else ("", bridge.place)
    selector = known.queues.selector(queue)
    if selector is None:
        table.remark(Kind.CHECK, place, "queue-name", _UNKNOWN_QUEUE, queue)
    table.set("queue-name", selector or queue, place)
    address = (selector or queue).partition("::")[0]
    letters = known.patterns.text(address, "dead-letter-address")
    if letters:
        table.set("dead-letter-address", letters, place, spare=True)


def _static_connectors(draft: Draft, table: Table, bridge: Element) -> None:
    connectors = connector_names(table, bridge)
    discovery = bridge.child("discovery-group-ref")
    if discovery is not None:
        place = discovery.place
        table.remark(Kind.LEFT, place, discovery.name, SCOPES["bridge"][discovery.name].answer)
        if not connectors:
            name = f"{table.rows['name'].value}-target"
            connector = draft.add(("connectors", name), f"connector {name}", place)
            connector.set("url", f"ws://{NOWHERE}:{PORT}", place)
            connector.remark(Kind.CHECK, place, "url", _TARGET)
            connectors = {name: place}
    for other in [*connectors][1:]:
        table.remark(Kind.CHECK, connectors[other], "failover", _FAILOVER, other)
    if connectors:
        _set_connectors(table, connectors, bridge.place)


def _set_connectors(table: Table, connectors: Mapping[str, Place], place: Place) -> None:
    table.set("static-connectors", [*connectors], place)
    table.rows["static-connectors"].places = [*connectors.values()]


def connector_names(table: Table, element: Element) -> dict[str, Place]:
    """The connectors of `<static-connectors>`, each once, with their places."""
    names: dict[str, Place] = {}
    for connectors in element.named("static-connectors"):
        for reference in connectors.children:
            if reference.name == "connector-ref":
                names.setdefault(reference.text, reference.place)
            else:
                table.remark(
                    Kind.LEFT, reference.place, reference.name, unknown(reference.name), reference.text
                )
    return names


def _filter(table: Table, element: Element) -> None:
    condition = element.child("filter")
    if condition is not None and condition.attributes.get("string", "").strip():
        table.set("filter", condition.attributes["string"], condition.place)


def _transformer(table: Table, element: Element) -> None:
    """Write a placeholder: `validate` refuses it until there is a transformer in Python."""
    plain, structured = element.child("transformer-class-name"), element.child("transformer")
    if structured is not None:
        plain = structured.child("class-name") or structured
        properties = {
            item.attributes.get("key", ""): item.attributes.get("value", "")
            for item in structured.named("property")
        }
        if properties:
            table.set("transformer-properties", properties, structured.place, placeholder=True)
    if plain is not None:
        java = plain.text.rpartition(".")[2]
        callable_name = re.sub(r"\W", "_", java) or "transform"
        table.set("transformer", f"{_TRANSFORMERS}:{callable_name}", plain.place, placeholder=True)
        table.remark(
            Kind.CHECK, plain.place, "transformer", SCOPES["bridge"]["transformer"].answer, plain.text
        )


def _concurrency(table: Table, bridge: Element) -> None:
    """Say what stands for Artemis's lanes; `carry` writes the key."""
    lanes = bridge.child("concurrency")
    if lanes is not None and lanes.text != "1":
        answer = SCOPES["bridge"]["concurrency"].answer
        table.remark(Kind.CHECK, lanes.place, "concurrency", answer, lanes.text)


def convert_diverts(draft: Draft, diverts: Element) -> None:
    """Write `[[bridges]]` from this node to this node for those that copy; a remark on the others."""
    addresses = {table.path[1]: table for table in draft.tables if table.path[0] == "addresses"}
    copied = {
        _text(divert, "address") for divert in diverts.named("divert") if not _is_true(divert, "exclusive")
    }
    for divert in diverts.children:
        name, address = divert.attributes.get("name", ""), _text(divert, "address")
        if divert.name != "divert":
            draft.general.remark(Kind.LEFT, divert.place, divert.name, unknown(divert.name), divert.text)
            continue
        why = _misfit(divert, addresses.get(address), address in copied)
        if why:
            draft.general.remark(Kind.LEFT, divert.place, f"divert {name}", why, address)
            continue
        targets = [target.strip() for target in _text(divert, "forwarding-address").split(",")]
        for number, target in enumerate(targets, 1):
            bridge = f"divert-{name}-{number}" if len(targets) > 1 else f"divert-{name}"
            _copy(draft.add(_BRIDGES, f"divert {name}", divert.place), divert, bridge, target)
            if address not in addresses:
                draft.tables[-1].remark(Kind.CHECK, divert.place, "address", _UNKNOWN_ADDRESS, address)


def _copy(table: Table, divert: Element, name: str, target: str) -> None:
    """Write the bridge that copies to one of a divert's targets."""
    table.set("name", name, divert.place)
    table.set("queue-name", _text(divert, "address"), divert.place)
    table.set("forwarding-address", target, divert.place)
    table.set("static-connectors", [JOURNAL], divert.place)
    if _is_true(divert, "exclusive"):
        table.remark(Kind.CHECK, divert.place, "exclusive", _ALONE)
    _filter(table, divert)
    _transformer(table, divert)
    done = {"name", "address", "forwarding-address", "filter", "transformer", "transformer-class-name"}
    carry(table, "divert", divert, done | {"exclusive"})
    table.set("routing-type", "STRIP", divert.place)


def _misfit(divert: Element, address: Table | None, copied: bool) -> str:
    """Why a bridge cannot stand for a divert; empty: it can.

    `copied` says whether a divert that is not exclusive has the same address.
    """
    exclusive = _is_true(divert, "exclusive")
    if not _text(divert, "forwarding-address"):
        return "must have a forwarding-address"
    if exclusive and copied:
        return _FIRST
    if address is not None and address.rows["routing-type"].value == "ANYCAST":
        return "" if exclusive and divert.child("filter") is None else _SHARED
    return _TAKEN_AWAY if exclusive and address is not None and "queues" in address.rows else ""


def _is_true(element: Element, name: str) -> bool:
    return _text(element, name).lower() == "true"


def _text(element: Element, name: str) -> str:
    child = element.child(name)
    return child.text if child is not None else ""


def convert_clusters(draft: Draft, clusters: Element) -> None:
    """Write `[[cluster-connections]]` for each."""
    for cluster in clusters.children:
        if cluster.name != "cluster-connection":
            text = (
                SCOPES["cluster-connection"]["uri"].answer
                if cluster.name.endswith("-uri")
                else unknown(cluster.name)
            )
            draft.general.remark(
                Kind.LEFT, cluster.place, cluster.name, text, cluster.attributes.get("address", "")
            )
            continue
        name = cluster.attributes.get("name", "")
        table = draft.add(_CLUSTERS, f"cluster-connection {name}", cluster.place)
        table.set("name", name, cluster.place)
        _contacts(table, cluster)
        forward = cluster.child("forward-when-no-consumers")
        if forward is not None:
            mode = "STRICT" if forward.text.lower() == "true" else "ON_DEMAND"
            table.set("message-load-balancing", mode, forward.place)
        done = {"name", "static-connectors", "discovery-group-ref", "forward-when-no-consumers"}
        carry(table, "cluster-connection", cluster, done)


def _contacts(table: Table, cluster: Element) -> None:
    names = connector_names(table, cluster)
    if names:
        _set_connectors(table, names, cluster.place)
    for connectors in cluster.named("static-connectors"):
        if connectors.attributes.get("allow-direct-connections-only", "").lower() == "true":
            table.set("allow-direct-connections-only", True, connectors.place, spare=True)
    discovery = cluster.child("discovery-group-ref")
    if discovery is not None:
        table.set("discovery", f"dns://{NOWHERE}:{PORT}", discovery.place)
        table.remark(Kind.CHECK, discovery.place, "discovery", _DNS)
