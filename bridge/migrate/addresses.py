"""Artemis's `<address-settings>`, `<addresses>`, `<queues>` and `<jms>`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.ends import JOURNAL
from bridge.messages.addresses import QUEUE_MARK, matches
from bridge.migrate.document import Element
from bridge.migrate.draft import TWICE, Draft, Kind, Row, Table, carry, unknown
from bridge.migrate.values import shown_size, size_bytes
from bridge.settings.artemis import SCOPES, answer_to_value
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
_NO_TYPE: Final = "broker.xml gives no routing type: MULTICAST is written"
_TWO_ADDRESSES: Final = "written twice: as in Artemis, the address has the queues of both"
_TWO_PARTS: Final = "written twice: the queues of both are written"
_OTHER_ADDRESS: Final = "Artemis has a queue name once, at the first address that declares it"
_NO_QUEUE: Final = (
    "no queue in broker.xml: Artemis drops what is sent there, and here it is kept, up to max-size-bytes"
)
_SETTING_TWICE: Final = "written twice: Artemis takes the first one, and ignores this one"
_MEMORY: Final = "with PAGE and page-limit-bytes it bounds Artemis's memory: here every message is on disk"
_NO_LIMIT: Final = (
    "Artemis pages to disk beyond it, without a limit: here, too, an address with PAGE takes what the disk "
    "holds; a smaller max-size-bytes bounds it"
)
_ONLY_PAGE: Final = "only PAGE reads it"
_NO_PAGE_LIMIT: Final = (
    "it acts at page-limit-bytes, and there is none: the address takes what the disk holds; a smaller "
    "max-size-bytes bounds it"
)
_NO_CONDITION: Final = "without a condition it takes every message, as if it were not there"
_ZERO: Final = "no limit: an address takes what the disk holds"
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
                match = setting.attributes.get("match", "")
                if match in found:  # Artemis ignores it
                    continue
                keys = found[match] = {}
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
    matches_seen: set[str] = set()
    for setting in (one for settings in core.named("address-settings") for one in settings.each()):
        match, place = setting.attribute("match"), setting.place
        name = f'address-setting "{match}"'
        if setting.name != "address-setting":
            draft.general.remark(Kind.LEFT, place, setting.name, unknown(setting.name), setting)
        elif match.startswith(_OWN):
            draft.general.remark(Kind.IDLE, place, name, _OWN_SETTINGS, setting)
        elif match in matches_seen:
            draft.general.remark(Kind.LEFT, place, name, _SETTING_TWICE, setting)
        else:
            matches_seen.add(match)
            table = draft.add(("address-settings", match), name, place)
            if any(setting.has(key) for key in _FULL):
                _limits(table, patterns, match)
            carry(table, "address-setting", setting, {"match", *_FULL})
            if not setting.children:
                table.remark(Kind.IDLE, place, "", "it has no key, and so changes nothing")
    table = draft.add(("address-settings", _ANY), f'address-setting "{_ANY}"', core.place)
    written = set(table.rows)
    if "max-size-bytes" not in written:
        _limits(table, patterns, _ANY)
    for key, value in _DEFAULTS.items():
        table.set(key, value, core.place)
    for key in table.rows.keys() - written:
        table.rows[key].note = "Artemis's default"
    return patterns


@dataclass(frozen=True, slots=True)
class _Limit:
    """How full an address may be, which Artemis says with up to four keys, and what happens then.

    With PAGE an address is full at its page limit, if it has one: `max-size-bytes` only says what is kept in
    memory.
    """

    policy: str
    #: The key that the limit comes from, and its text.
    key: str
    text: str
    #: In bytes; -1: none.
    size: int
    #: The rule that the text breaks; empty: none.
    broken: str = ""

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> _Limit:
        """The limit that the texts of the keys make, each empty where the key is not written."""
        policy = texts["address-full-policy"] or _DEFAULT_POLICY
        key = "page-limit-bytes" if policy == _DEFAULT_POLICY else "max-size-bytes"
        text = texts[key] or _NONE
        try:
            size = size_bytes(text)
        except ValueError as error:
            return cls(policy, key, text, -1, str(error))
        return cls(policy, key, text, size if size > 0 else -1)

    @property
    def shown(self) -> int | str:
        """As `max-size-bytes` here."""
        return shown_size(self.size if self.size > 0 else LARGEST_SIZE_BYTES)


def _limits(table: Table, patterns: Patterns, match: str) -> None:
    """Write how full the addresses of a pattern may be."""
    texts = {key: patterns.text(match, key) for key in _FULL}
    limit = _Limit.of(texts)
    own = {key: patterns.by_match.get(match, {}).get(key) for key in _FULL}
    for element in own.values():
        if element is not None:
            element.is_read = element.is_text_read = True
    places = {key: element.place if element else table.place for key, element in own.items()}
    if limit.broken:
        table.remark(Kind.LEFT, places[limit.key], limit.key, limit.broken, limit.text)
    table.set("max-size-bytes", limit.shown, places["max-size-bytes"], spare=True)
    is_paged = limit.policy == _DEFAULT_POLICY
    full = texts["page-full-policy"] if is_paged and limit.size > 0 else ""
    here = {"PAGE": "FAIL" if full else "BLOCK", "DROP": "FAIL"}.get(limit.policy, limit.policy)
    table.set("address-full-policy", here, places["address-full-policy"], spare=True)
    _remark_policy(table, limit, own)
    for key, text in ((key, element.text) for key, element in own.items() if element is not None):
        why = _why_other(
            key, text, limit, has_size=_Limit.of({**texts, "address-full-policy": "FAIL"}).size > 0
        )
        if why is not None:
            table.remark(why[0], places[key], key, why[1], text)


def _remark_policy(table: Table, limit: _Limit, own: Mapping[str, Element | None]) -> None:
    """Say what the policy becomes where the pattern itself has it or the size that it acts at."""
    answer = answer_to_value("address-settings", "address-full-policy", limit.policy)
    at = f"{limit.policy} at {limit.text}" if limit.size > 0 else limit.policy
    policy, size = own["address-full-policy"], own["max-size-bytes"]
    if policy is not None and answer:
        table.remark(Kind.CHECK, policy.place, "address-full-policy", answer, at)
    elif size is not None and answer and limit.key == "max-size-bytes" and limit.size > 0:
        table.remark(Kind.CHECK, size.place, "max-size-bytes", answer, at)


def _why_other(key: str, text: str, limit: _Limit, *, has_size: bool) -> tuple[Kind, str] | None:
    """Why a key acts in another way here, or not at all; None: it does not."""
    is_paged = limit.policy == _DEFAULT_POLICY
    has_limit = has_size if key == "max-size-bytes" else limit.size > 0 or not is_paged
    match key:
        case "max-size-bytes" | "page-limit-bytes" if not has_limit and text != _NONE:
            return Kind.CHECK, _ZERO
        case "max-size-bytes" if is_paged and has_size:
            return (Kind.IDLE, _MEMORY) if limit.size > 0 else (Kind.CHECK, _NO_LIMIT)
        case "page-full-policy" if is_paged:
            answer = SCOPES["address-setting"]["page-full-policy"].answer
            at = f"{answer}: the limit is page-limit-bytes {limit.text}"
            return Kind.CHECK, at if limit.size > 0 else _NO_PAGE_LIMIT
        case "page-limit-bytes" | "page-full-policy" if not is_paged:
            return Kind.IDLE, _ONLY_PAGE
        case _:
            return None


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

    def address(self, queue: str) -> str:
        """The address of a queue; empty: broker.xml does not declare it."""
        return self.here.get(queue, "").partition(QUEUE_MARK)[0]


@dataclass(slots=True)
class _Declared:
    """What broker.xml declares of one address, in all its places."""

    table: Table
    #: The routing types, in the order of the document.
    types: dict[str, None] = field(default_factory=dict)
    #: The queues: the name, and the element that declares it.
    queues: list[tuple[str, Element]] = field(default_factory=list)


def convert_addresses(draft: Draft, core: Element, jms: Iterable[Element]) -> Queues:
    """Write `[addresses.NAME]` for each address, and for the deprecated forms."""
    declared: dict[str, _Declared] = {}

    def add(name: str, element: Element) -> _Declared:
        if name not in declared:
            declared[name] = _Declared(draft.add(("addresses", name), f"address {name}", element.place))
        return declared[name]

    for address in (one for addresses in core.named("addresses") for one in addresses.each()):
        name = address.attribute("name")
        if address.name != "address":
            draft.general.remark(Kind.LEFT, address.place, address.name, unknown(address.name), address)
            continue
        if name in declared:
            declared[name].table.remark(Kind.CHECK, address.place, "", _TWO_ADDRESSES)
        _declare(add(name, address), address)
    for queue in (one for queues in core.named("queues") for one in queues.each()):
        owner = queue.child("address")
        name = owner.content() if owner is not None else queue.attribute("name")
        one = add(name, queue)
        one.types["multicast"] = None
        one.queues.append((queue.attribute("name"), queue))
    for child in (one for part in jms for one in part.each()):
        _declare_jms(draft, child, add)
    found = Queues()
    for one in declared.values():
        _write_address(one, found)
    return found


def _declare(declared: _Declared, address: Element) -> None:
    """Take in an `<address>`."""
    for kind in ("anycast", "multicast"):
        for index, part in enumerate(address.named(kind)):
            if index:
                declared.table.remark(Kind.CHECK, part.place, kind, _TWO_PARTS)
            declared.types[kind] = None
            for queue in part.each():
                if queue.name == "queue":
                    declared.queues.append((queue.attribute("name"), queue))
                else:
                    declared.table.remark(Kind.LEFT, queue.place, queue.name, unknown(queue.name), queue)
    if not address.has("anycast") and not address.has("multicast"):
        declared.table.remark(Kind.CHECK, address.place, "", _NO_TYPE)
    carry(declared.table, "address", address, {"name", "anycast", "multicast"})


def _declare_jms(draft: Draft, child: Element, add: Callable[[str, Element], _Declared]) -> None:
    """Take in a queue or topic of the deprecated `<jms>`."""
    name = child.attribute("name")
    if child.name == "queue":
        one = add(name, child)
        one.types["anycast"] = None
        one.queues.append((name, child))
    elif child.name == "topic":
        one = add(name, child)
        if one.types:
            one.table.remark(Kind.CHECK, child.place, f"topic {name}", _TWO_ADDRESSES)
        one.types["multicast"] = None
        for inner in child.each():
            one.table.remark(Kind.LEFT, inner.place, inner.name, unknown(inner.name), inner)
    else:
        draft.general.remark(Kind.LEFT, child.place, child.name, unknown(child.name), child)


def _write_address(declared: _Declared, queues: Queues) -> None:
    """Write an address with those of its queues that no other one has already."""
    table, name = declared.table, declared.table.path[1]
    own: list[tuple[str, Element]] = []
    for queue_name, queue in declared.queues:
        other = queues.address(queue_name)
        if other:
            why = TWICE if other == name else f"{_OTHER_ADDRESS}: {other}"
            table.remark(Kind.LEFT, queue.place, f"queue {queue_name}", why, queue)
            continue
        queues.here[queue_name] = (
            name if [*declared.types] == ["anycast"] else f"{name}{QUEUE_MARK}{queue_name}"
        )
        own.append((queue_name, queue))
    if [*declared.types] == ["anycast"]:
        _anycast(table, own)
        return
    if len(declared.types) > 1:
        table.remark(Kind.CHECK, table.place, "anycast, multicast", _ONE_TYPE)
    _multicast(table, own)


def _anycast(table: Table, found: Sequence[tuple[str, Element]]) -> None:
    name = table.path[1]
    table.set("routing-type", "ANYCAST", table.place)
    if not found:
        table.remark(Kind.CHECK, table.place, "", f"no queue in broker.xml: {_ONE_QUEUE}")
    for index, (queue_name, queue) in enumerate(found):
        if index or queue_name != name:
            table.remark(Kind.CHECK, queue.place, f"queue {queue_name}", f"{_ONE_QUEUE}: {name}")
        condition = queue.child("filter") or queue.child("selector")
        if condition is not None:
            table.remark(Kind.LEFT, condition.place, f"queue {queue_name}: filter", _NO_FILTER, condition)
        _rest(table, queue)


def _multicast(table: Table, found: Sequence[tuple[str, Element]]) -> None:
    table.set("routing-type", "MULTICAST", table.place)
    if found:
        table.set("queues", [], found[0][1].place)
    for name, queue in found:
        text = condition_of(table, queue)
        table.rows["queues"].value.append({"name": name, "filter": text} if text else name)
        table.rows["queues"].places.append(queue.place)
        _rest(table, queue)


def condition_of(table: Table, element: Element) -> str:
    """The condition of a queue, bridge or divert; empty: there is none."""
    condition = element.child("filter")
    if condition is None:
        return ""
    text = condition.attribute("string")
    if not text.strip():
        table.remark(Kind.IDLE, condition.place, "filter", _NO_CONDITION)
        return ""
    return text


def _rest(table: Table, queue: Element) -> None:
    """Remarks on what else a queue has."""
    inner = Table(table.path, f"{table.what}: queue {queue.attribute('name')}", queue.place)
    carry(inner, "queue", queue, {"name", "filter", "selector", "address"})
    table.remarks += inner.remarks


def remark_unread_addresses(draft: Draft, patterns: Patterns) -> None:
    """Name the addresses that have neither a queue nor a bridge: Artemis drops what is sent there."""
    addresses = {table.path[1]: table for table in draft.tables if table.path[0] == "addresses"}
    bridges = [table for table in draft.tables if table.path[0] == "bridges"]
    read = {str(table.rows["queue-name"].value) for table in bridges if "queue-name" in table.rows}

    def has_reader(name: str) -> bool:
        table = addresses.get(name)
        rows = table.rows if table is not None else {}
        anycast = "routing-type" in rows and rows["routing-type"].value == "ANYCAST"
        return name in read or anycast or "queues" in rows

    def limit(name: str) -> str:
        texts = {key: patterns.text(name, key) for key in _FULL}
        found = _Limit.of(texts)
        size = texts["max-size-bytes"]
        return f"{found.shown}{f', in broker.xml {size}' if size else ''}"

    for name, table in addresses.items():
        if not has_reader(name):
            table.remark(Kind.CHECK, table.place, "", _NO_QUEUE, limit(name))
    for table in bridges:
        keys = ["dead-letter-address"]
        if JOURNAL in table.rows.get("static-connectors", Row([], table.place)).value:
            keys.append("forwarding-address")
        for key in keys:
            row = table.rows.get(key)
            if row is not None and row.value not in addresses and not has_reader(row.value):
                table.remark(Kind.CHECK, row.place, key, f"{row.value} has {_NO_QUEUE}", limit(row.value))
