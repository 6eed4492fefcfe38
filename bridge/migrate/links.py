"""Artemis's `<bridges>`, `<diverts>` and `<cluster-connections>`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bridge.ends import JOURNAL
from bridge.migrate.addresses import Patterns, Queues, condition_of
from bridge.migrate.connectors import NOWHERE, PORT
from bridge.migrate.document import Element, Place
from bridge.migrate.draft import TWICE, Draft, Kind, Table, carry, unknown
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
_TARGET: Final = (
    "the node that the bridge delivers to, found by discovery in broker.xml; ws:// has no TLS, wss:// has it"
)
_STAY: Final = "as in Artemis, messages that it does not match stay in the queue, for its readers"
_FILTERED: Final = (
    "in Artemis messages that it does not match stay in the queue; here the bridge reads the address, passes "
    "them, and counts them as filtered"
)
_LAST: Final = "written twice: the last one counts"
_DIRECT: Final = "allow-direct-connections-only"
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


def convert_bridges(draft: Draft, core: Element, known: Known) -> None:
    """Write `[[bridges]]` for each."""
    for bridge in (one for bridges in core.named("bridges") for one in bridges.each()):
        if bridge.name != "bridge":
            draft.general.remark(Kind.LEFT, bridge.place, bridge.name, unknown(bridge.name), bridge)
            continue
        name = bridge.attribute("name")
        table = draft.add(_BRIDGES, f"bridge {name}", bridge.place)
        table.set("name", name, bridge.place)
        is_shared = _source(table, bridge, known)
        _static_connectors(draft, table, bridge)
        _filter(table, bridge)
        if "filter" in table.rows:
            kind, text = (Kind.IDLE, _STAY) if is_shared else (Kind.CHECK, _FILTERED)
            table.remark(kind, table.rows["filter"].place, "filter", text)
        _transformer(table, bridge)
        _concurrency(table, bridge)
        done = {"name", "queue-name", "static-connectors", "filter", "transformer", "transformer-class-name"}
        carry(table, "bridge", bridge, done | {"discovery-group-ref"})


def _source(table: Table, bridge: Element, known: Known) -> bool:
    """Write what the bridge reads; whether it is a queue that the bridge shares with readers."""
    element = bridge.child("queue-name")
    queue, place = (element.content(), element.place) if element is not None else ("", bridge.place)
    selector = known.queues.selector(queue)
    if selector is None:
        table.remark(Kind.CHECK, place, "queue-name", _UNKNOWN_QUEUE, queue)
    table.set("queue-name", selector or queue, place)
    address = (selector or queue).partition("::")[0]
    letters = known.patterns.text(address, "dead-letter-address")
    if letters:
        table.set("dead-letter-address", letters, place, spare=True)
    return selector is not None


def _static_connectors(draft: Draft, table: Table, bridge: Element) -> None:
    connectors = connector_names(table, bridge)
    discovery = bridge.child("discovery-group-ref")
    if discovery is not None:
        place = discovery.place
        table.remark(Kind.LEFT, place, discovery.name, SCOPES["bridge"][discovery.name].answer, discovery)
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
    for reference in (one for connectors in element.named("static-connectors") for one in connectors.each()):
        place = reference.place
        if reference.name != "connector-ref":
            table.remark(Kind.LEFT, place, reference.name, unknown(reference.name), reference)
        elif reference.content() in names:
            table.remark(Kind.LEFT, place, reference.name, TWICE, reference)
        else:
            names[reference.text] = place
    return names


def _filter(table: Table, element: Element) -> None:
    condition, text = element.child("filter"), condition_of(table, element)
    if condition is not None and text:
        table.set("filter", text, condition.place)


def _transformer(table: Table, element: Element) -> None:
    """Write a placeholder: `validate` refuses it until there is a transformer in Python."""
    plain, structured = element.child("transformer-class-name"), element.child("transformer")
    if structured is not None:
        if plain is not None:
            table.remark(Kind.LEFT, plain.place, plain.name, "transformer is written, too, and counts", plain)
        plain = structured.child("class-name") or structured
        properties: dict[str, str] = {}
        for item in structured.named("property"):
            key, value = item.attribute("key"), item.attribute("value")
            if key in properties:
                table.remark(Kind.LEFT, item.place, f"transformer: property {key}", _LAST, properties[key])
            properties[key] = value
        if properties:
            table.set("transformer-properties", properties, structured.place, placeholder=True)
    if plain is not None:
        java = plain.content().rpartition(".")[2]
        callable_name = re.sub(r"\W", "_", java) or "transform"
        table.set("transformer", f"{_TRANSFORMERS}:{callable_name}", plain.place, placeholder=True)
        table.remark(
            Kind.CHECK, plain.place, "transformer", SCOPES["bridge"]["transformer"].answer, plain.text
        )


def _concurrency(table: Table, bridge: Element) -> None:
    """Say what stands for Artemis's lanes; `carry` writes the key."""
    lanes = next((child for child in bridge.children if child.name == "concurrency"), None)
    if lanes is not None and lanes.text != "1":
        answer = SCOPES["bridge"]["concurrency"].answer
        table.remark(Kind.CHECK, lanes.place, "concurrency", answer, lanes.text)


def convert_diverts(draft: Draft, core: Element) -> None:
    """Write `[[bridges]]` from this node to this node for those that copy; a remark on the others."""
    addresses = {table.path[1]: table for table in draft.tables if table.path[0] == "addresses"}
    found = [one for diverts in core.named("diverts") for one in diverts.each()]
    copied = {
        _text(divert, "address")
        for divert in found
        if divert.name == "divert" and not _is_true(divert, "exclusive")
    }
    for divert in found:
        name = divert.attribute("name")
        if divert.name != "divert":
            draft.general.remark(Kind.LEFT, divert.place, divert.name, unknown(divert.name), divert)
            continue
        address = _text(divert, "address")
        why = _misfit(divert, addresses.get(address), address in copied)
        if why:
            draft.general.remark(Kind.LEFT, divert.place, f"divert {name}", why, divert)
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
    elif (exclusive := _text(divert, "exclusive").lower()) not in ("", "false"):
        table.remark(Kind.LEFT, divert.place, "exclusive", "must be true or false", exclusive)
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
        return "" if exclusive and not divert.has("filter") else _SHARED
    return _TAKEN_AWAY if exclusive and address is not None and "queues" in address.rows else ""


def _is_true(element: Element, name: str) -> bool:
    return _text(element, name).lower() == "true"


def _text(element: Element, name: str) -> str:
    child = element.child(name)
    return child.content() if child is not None else ""


def convert_clusters(draft: Draft, core: Element) -> None:
    """Write `[[cluster-connections]]` for each."""
    for cluster in (one for clusters in core.named("cluster-connections") for one in clusters.each()):
        name, place = cluster.attribute("name"), cluster.place
        if cluster.name != "cluster-connection":
            uri = cluster.name.endswith("-uri")
            text = SCOPES["cluster-connection"]["uri"].answer if uri else unknown(cluster.name)
            draft.general.remark(Kind.LEFT, place, cluster.name, text, cluster)
            continue
        table = draft.add(_CLUSTERS, f"cluster-connection {name}", place)
        table.set("name", name, place)
        _contacts(table, cluster)
        forward = cluster.child("forward-when-no-consumers")
        if forward is not None:
            mode = "STRICT" if forward.content().lower() == "true" else "ON_DEMAND"
            table.set("message-load-balancing", mode, forward.place)
        done = {"name", "static-connectors", "discovery-group-ref", "forward-when-no-consumers"}
        carry(table, "cluster-connection", cluster, done)


def _contacts(table: Table, cluster: Element) -> None:
    names = connector_names(table, cluster)
    if names:
        _set_connectors(table, names, cluster.place)
    for connectors in cluster.named("static-connectors"):
        direct = connectors.attribute("allow-direct-connections-only")
        if _DIRECT in table.rows:
            table.remark(Kind.LEFT, connectors.place, _DIRECT, TWICE, direct)
        elif direct.lower() == "true":
            table.set("allow-direct-connections-only", True, connectors.place, spare=True)
        elif direct.lower() not in ("", "false"):
            table.remark(Kind.LEFT, connectors.place, _DIRECT, "must be true or false", direct)
    discovery = cluster.child("discovery-group-ref")
    if discovery is not None:
        table.set("discovery", f"dns://{NOWHERE}:{PORT}", discovery.place)
        table.remark(Kind.CHECK, discovery.place, "discovery", _DNS, discovery)
