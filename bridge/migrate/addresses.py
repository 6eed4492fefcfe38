"""Artemis's `<address-settings>`, `<addresses>`, `<queues>` and `<jms>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.messages.addresses import QUEUE_MARK, matches
from bridge.migrate.document import Element
from bridge.migrate.draft import Draft, Kind, Table, carry, unknown
from bridge.migrate.values import shown_size, size_bytes
from bridge.settings.artemis import answer_to_value
from bridge.settings.names import specificity
from bridge.settings.units import LARGEST_SIZE_BYTES

#: Artemis's defaults that are others here: they hold where broker.xml says nothing.
_DEFAULTS: Final[Mapping[str, bool]] = {
    "auto-create-queues": True,
    "auto-delete-queues": True,
    "auto-delete-addresses": True,
}
#: Elements that say together how full an address may be and what happens then.
_FULL: Final = ("max-size-bytes", "address-full-policy", "page-limit-bytes", "page-full-policy")
#: No limit.
_NONE: Final = "-1"
_ANY: Final = "#"
_DEFAULT_POLICY: Final = "PAGE"

#: Beginnings of patterns that only cover Artemis's own addresses.
_OWN: Final = ("activemq.management", "activemq.notifications")
_OWN_SETTINGS: Final = "concerns Artemis's own addresses; [operations] serves status and management over HTTP"
_ONE_TYPE: Final = "an address has one routing type: MULTICAST, whose queues all get every message"
_ONE_QUEUE: Final = "an ANYCAST address has one queue, of its name, whose readers take turns"
_NO_FILTER: Final = "the queue of an ANYCAST address has no filter; a MULTICAST address's queues may"


@dataclass(frozen=True, slots=True)
class Patterns:
    """The elements of each pattern of `<address-settings>`."""

    by_match: Mapping[str, Mapping[str, Element]]
    #: By key and first word, those that have the key and cover more than one address.
    wildcards: Mapping[tuple[str, str], Sequence[str]]

    @classmethod
    def of(cls, core: Element) -> Patterns:
        """Those of all `<address-setting>`."""
        found: dict[str, dict[str, Element]] = {}
        for settings in core.named("address-settings"):
            for setting in settings.named("address-setting"):
                keys = found.setdefault(setting.attributes.get("match", ""), {})
                for child in setting.children:
                    keys.setdefault(child.name, child)
        wildcards: dict[tuple[str, str], list[str]] = {}
        for match, keys in found.items():
            if {"*", "#"} & {*match.split(".")}:
                for key in keys:
                    wildcards.setdefault((key, _first_word(match)), []).append(match)
        return cls(found, wildcards)

    def text(self, address: str, key: str) -> str:
        """The setting of an address or a pattern, from the most specific pattern on; empty: there is none."""
        own = self.by_match.get(address, {}).get(key)
        if own is not None:
            return own.text
        covering = [
            match
            for first in {_first_word(address), "*", "#"}
            for match in self.wildcards.get((key, first), ())
            if matches(match, address)
        ]
        return self.by_match[min(covering, key=specificity)][key].text if covering else ""


def _first_word(pattern: str) -> str:
    return pattern.partition(".")[0]


def convert_settings(draft: Draft, core: Element) -> Patterns:
    """Write `[address-settings."PATTERN"]` for each, and Artemis's defaults for "#"."""
    patterns = Patterns.of(core)
    for settings in core.named("address-settings"):
        for setting in settings.children:
            match = setting.attributes.get("match", "")
            if setting.name != "address-setting":
                draft.general.remark(
                    Kind.LEFT, setting.place, setting.name, unknown(setting.name), setting.text
                )
                continue
            if match.startswith(_OWN):
                draft.general.remark(Kind.IDLE, setting.place, f'address-setting "{match}"', _OWN_SETTINGS)
                continue
            table = draft.add(("address-settings", match), f'address-setting "{match}"', setting.place)
            if any(setting.child(key) for key in _FULL):
                _limits(table, patterns, match)
            carry(table, "address-setting", setting, {"match", *_FULL})
    table = draft.add(("address-settings", _ANY), f'address-setting "{_ANY}"', core.place)
    written = set(table.rows)
    if "max-size-bytes" not in written:
        _limits(table, patterns, _ANY)
    for key, value in _DEFAULTS.items():
        table.set(key, value, core.place)
    for key in table.rows.keys() - written:
        table.rows[key].note = "Artemis's default"
    return patterns


def _limits(table: Table, patterns: Patterns, match: str) -> None:
    """Write how full the addresses of a pattern may be, which Artemis says with up to four keys.

    With PAGE an address is full at its page limit, if it has one: `max-size-bytes` only says what is kept in
    memory.
    """
    texts = {key: patterns.text(match, key) for key in _FULL}
    policy = texts["address-full-policy"] or _DEFAULT_POLICY
    own = {key: patterns.by_match.get(match, {}).get(key) for key in _FULL}
    places = {key: element.place if element else table.place for key, element in own.items()}
    size, of = texts["max-size-bytes"] or _NONE, "max-size-bytes"
    if policy == _DEFAULT_POLICY:
        size, of = texts["page-limit-bytes"] or _NONE, "page-limit-bytes"
    try:
        limit = size_bytes(size)
    except ValueError as error:
        table.remark(Kind.LEFT, places[of], of, str(error), size)
        limit = -1
    shown = shown_size(limit if limit > 0 else LARGEST_SIZE_BYTES)
    table.set("max-size-bytes", shown, places["max-size-bytes"], spare=True)
    full = texts["page-full-policy"] if policy == _DEFAULT_POLICY and limit > 0 else ""
    here = {"PAGE": "FAIL" if full else "BLOCK", "DROP": "FAIL"}.get(policy, policy)
    table.set("address-full-policy", here, places["address-full-policy"], spare=True)
    answer = answer_to_value("address-settings", "address-full-policy", policy)
    if answer and own["address-full-policy"]:
        table.remark(Kind.CHECK, places["address-full-policy"], "address-full-policy", answer, policy)


class Queues:
    """The queues of broker.xml: where a queue is found here."""

    def __init__(self) -> None:
        #: By the queue's name, as bridges name it here.
        self.here: dict[str, str] = {}

    def selector(self, name: str) -> str | None:
        """The `queue-name` that reads a queue of Artemis's; None: broker.xml does not declare it.

        The address of a qualified name does not count, as in Artemis.
        """
        return self.here.get(name.rpartition(QUEUE_MARK)[2])


def convert_addresses(draft: Draft, core: Element) -> Queues:
    """Write `[addresses.NAME]` for each address, and for the deprecated forms."""
    queues = Queues()
    for addresses in core.named("addresses"):
        for address in addresses.children:
            if address.name == "address":
                _address(draft, address, queues)
            else:
                draft.general.remark(
                    Kind.LEFT, address.place, address.name, unknown(address.name), address.text
                )
    for old in core.named("queues"):
        for queue in old.children:
            owner = queue.child("address")
            name = owner.text if owner is not None else queue.attributes.get("name", "")
            _multicast(draft.add(("addresses", name), f"address {name}", queue.place), [queue], queues)
    return queues


def convert_jms(draft: Draft, jms: Element, queues: Queues) -> None:
    """Write `[addresses.NAME]` for the queues and topics of the deprecated `<jms>`."""
    for child in jms.children:
        name = child.attributes.get("name", "")
        if child.name not in ("queue", "topic"):
            draft.general.remark(Kind.LEFT, child.place, child.name, unknown(child.name), child.text)
            continue
        table = draft.add(("addresses", name), f"address {name}", child.place)
        kind = "ANYCAST" if child.name == "queue" else "MULTICAST"
        table.set("routing-type", kind, child.place)
        if kind == "ANYCAST":
            queues.here[name] = name
        for inner in child.children:
            table.remark(Kind.LEFT, inner.place, inner.name, _NO_FILTER, inner.text)


def _address(draft: Draft, address: Element, queues: Queues) -> None:
    name = address.attributes.get("name", "")
    table = draft.add(("addresses", name), f"address {name}", address.place)
    anycast, multicast = ([*_queues_in(address, kind)] for kind in ("anycast", "multicast"))
    carry(table, "address", address, {"name", "anycast", "multicast"})
    types = [kind for kind in ("anycast", "multicast") if address.child(kind) is not None]
    if types == ["anycast"]:
        _anycast(table, anycast, queues)
        return
    if len(types) == 2:
        table.remark(Kind.CHECK, address.place, "anycast, multicast", _ONE_TYPE)
    _multicast(table, [*anycast, *multicast], queues)


def _queues_in(address: Element, kind: str) -> Sequence[Element]:
    return [queue for types in address.named(kind) for queue in types.children]


def _anycast(table: Table, found: Sequence[Element], queues: Queues) -> None:
    name = table.path[1]
    table.set("routing-type", "ANYCAST", table.place)
    for index, queue in enumerate(found):
        queue_name = queue.attributes.get("name", "")
        queues.here[queue_name] = name
        if index or queue_name != name:
            table.remark(Kind.CHECK, queue.place, f"queue {queue_name}", f"{_ONE_QUEUE}: {name}")
        condition = queue.child("filter")
        if condition is not None:
            text = condition.attributes.get("string", "")
            table.remark(Kind.LEFT, condition.place, f"queue {queue_name}: filter", _NO_FILTER, text)
        _rest(table, queue)


def _multicast(table: Table, found: Sequence[Element], queues: Queues) -> None:
    table.set("routing-type", "MULTICAST", table.place)
    if found:
        table.set("queues", [], found[0].place)
    for queue in found:
        name = queue.attributes.get("name", "")
        queues.here[name] = f"{table.path[1]}{QUEUE_MARK}{name}"
        condition = queue.child("filter")
        text = condition.attributes.get("string", "") if condition is not None else ""
        table.rows["queues"].value.append({"name": name, "filter": text} if text.strip() else name)
        table.rows["queues"].places.append(queue.place)
        _rest(table, queue)


def _rest(table: Table, queue: Element) -> None:
    """Remarks on what else a queue has."""
    inner = Table(table.path, f"{table.what}: queue {queue.attributes.get('name', '')}", queue.place)
    carry(inner, "queue", queue, {"name", "filter", "address"})
    table.remarks += inner.remarks
