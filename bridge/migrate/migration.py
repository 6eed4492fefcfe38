"""From a broker.xml to settings: which element is converted where, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.migrate.addresses import convert_addresses, convert_settings, remark_unread_addresses
from bridge.migrate.connectors import convert_acceptors, convert_connectors
from bridge.migrate.document import Document, Element, NotBrokerXml, Place, read
from bridge.migrate.draft import Draft, Kind, Remark, carry_row, unknown
from bridge.migrate.links import Known, convert_bridges, convert_clusters, convert_diverts
from bridge.migrate.values import Filled, fill
from bridge.migrate.written import written
from bridge.settings.artemis import SCOPES, Form
from bridge.settings.load import MAX_FILE_BYTES

#: Elements of `<core>` that are converted by functions of their own.
_CONVERTED: Final = (
    "connectors", "acceptors", "address-settings", "addresses", "queues", "bridges", "diverts",
    "cluster-connections",
)  # fmt: skip
#: What is said of a property without a value, and of one whose default is taken.
UNSET: Final = "a property without a value: --property NAME=VALUE gives one"
BY_DEFAULT: Final = "a property: its default is taken; --property NAME=VALUE gives another value"


@dataclass(frozen=True, slots=True)
class Migration:
    """The outcome."""

    #: The settings.
    text: str
    #: In the order of broker.xml.
    remarks: list[Remark]

    @property
    def is_complete(self) -> bool:
        """Whether the settings do all that broker.xml did, and nothing is to be decided."""
        return all(remark.kind is Kind.IDLE for remark in self.remarks)

    def count(self, kind: Kind) -> int:
        """The number of remarks of a kind."""
        return sum(remark.kind is kind for remark in self.remarks)


def migrate(path: Path, properties: Mapping[str, str]) -> Migration:
    """The settings that stand for the broker.xml at `path`.

    Raises:
        NotBrokerXml: it cannot be read, is none, or breaks a limit.
    """
    document = read(path, properties)
    root = document.root
    if root.name not in ("configuration", "core"):
        raise NotBrokerXml(
            f"{root.place}: must be <configuration>, Artemis's broker.xml; found <{root.name}>"
        )
    draft = Draft(root.place)
    _fill(draft, document, properties)
    root.is_read = True
    parts = [root] if root.name == "core" else [*root.named("core")]
    core = Element("core", parts[0].place if parts else root.place, {})
    core.children += [child for part in parts for child in part.children]
    _convert(draft, core, [*root.named("jms")] if root.name == "configuration" else [])
    draft.remark_unread(root)
    draft.settle(path.absolute().parent)
    remarks = draft.remarks()
    text = written(draft, remarks, str(path))
    if len(text.encode()) > MAX_FILE_BYTES:
        raise NotBrokerXml(f"{path}: must make settings of at most {MAX_FILE_BYTES} bytes; found more")
    return Migration(text, remarks)


def _fill(draft: Draft, document: Document, properties: Mapping[str, str]) -> None:
    """Fill in all properties."""
    for element in _all(document.root):
        texts = [("", element.text), *element.attributes.items()]
        for name, text in texts:
            if "${" not in text:
                continue
            filled = fill(text, properties)
            if name:
                element.attributes[name] = filled.text
            else:
                element.text = filled.text
            _remark_filled(draft, element.place, element.name, filled)
    for place, filled in document.includes:
        _remark_filled(draft, place, "xi:include", filled)


def _remark_filled(draft: Draft, place: Place, what: str, filled: Filled) -> None:
    """Name the properties without a value, and those whose default is taken."""
    if filled.unset:
        draft.general.remark(Kind.LEFT, place, what, UNSET, ", ".join(filled.unset))
    if filled.by_default:
        draft.general.remark(Kind.CHECK, place, what, BY_DEFAULT, ", ".join(filled.by_default))


def _all(root: Element) -> Iterator[Element]:
    waiting = [root]
    while waiting:
        element = waiting.pop()
        yield element
        waiting += element.children


def _convert(draft: Draft, core: Element, jms: Iterable[Element]) -> None:
    """Convert `<core>`, and `<jms>` of old files: what others refer to comes before them."""
    for child in core.each():
        if child.name not in _CONVERTED:
            _single(draft, child)
    convert_connectors(draft, core)
    convert_acceptors(draft, core)
    patterns = convert_settings(draft, core)
    known = Known(patterns, convert_addresses(draft, core, jms))
    convert_bridges(draft, core, known)
    convert_diverts(draft, core)
    convert_clusters(draft, core)
    remark_unread_addresses(draft, patterns)


def _single(draft: Draft, element: Element) -> None:
    """An element of `<core>` that is one value, or has an answer."""
    row = SCOPES["core"].get(element.name)
    if row is None:
        draft.general.remark(Kind.LEFT, element.place, element.name, unknown(element.name), element)
    elif row.form is Form.COMPOSED:
        carry_row(draft.general, row, element, element.place)
    else:
        top, _, key = row.becomes.partition(".")
        carry_row(draft.add((top,), "", element.place), replace(row, becomes=key), element, element.place)
