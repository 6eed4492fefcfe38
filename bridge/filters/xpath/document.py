"""An XML document as XPath sees it: nodes in document order. Comments are left out, as Artemis does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from xml.parsers import expat

from bridge.filters.limits import XML_DEEP_MOST, XPATH_NODES_MOST

#: So many characters of a document's text count as one node that is looked at.
CHARS_A_NODE: Final = 64
#: Between a namespace and a local name in what expat calls a name.
_SEPARATOR: Final = "\x01"


class NodeType(Enum):
    """The types of nodes that there are here."""

    ROOT = "root"
    ELEMENT = "element"
    ATTRIBUTE = "attribute"
    TEXT = "text"
    INSTRUCTION = "processing-instruction"


@dataclass(slots=True, eq=False)
class XmlNode:
    """A node. An element's descendants are those that follow it in the document up to `last`."""

    type: NodeType
    #: The document's nodes in order, attributes left out; shared by all of them.
    nodes: list[XmlNode]
    parent: XmlNode | None
    #: Place in document order: the node's own, then an attribute's among those of its element.
    order: tuple[int, int]
    #: With its prefix, as written.
    name: str = ""
    local: str = ""
    namespace: str = ""
    #: Of the root: the document's text.
    value: str = ""
    #: Place of the last descendant; its own where there is none.
    last: int = 0
    #: Its part of the document's text, in characters; of elements and the root.
    begins: int = 0
    ends: int = 0
    #: Of the root: nodes that a path has looked at.
    looked: int = 0
    children: list[XmlNode] = field(default_factory=list)
    attributes: list[XmlNode] = field(default_factory=list)

    def descendants(self) -> list[XmlNode]:
        """The nodes below this one, in document order, attributes left out."""
        if self.type is NodeType.ATTRIBUTE:
            return []
        return self.nodes[self.order[0] + 1 : self.last + 1]

    def text(self) -> str:
        """The node's string value: of an element and the root, all text below it."""
        if self.type not in (NodeType.ROOT, NodeType.ELEMENT):
            return self.value
        self.spend((self.ends - self.begins) // CHARS_A_NODE + 1)
        return self.nodes[0].value[self.begins : self.ends]

    def spend(self, nodes: int) -> None:
        """Count nodes that a path looks at.

        Raises:
            TooMuch: these are more than a document is worth.
        """
        root = self.nodes[0]
        root.looked += nodes
        if root.looked > XPATH_NODES_MOST:
            raise TooMuch(f"an XPath looks at no more than {XPATH_NODES_MOST} nodes")


class NoXml(Exception):
    """The text is no XML."""


class TooMuch(Exception):
    """The document is above a limit, or what a path looks at in it is."""


class _Reader:
    """Builds the nodes from what expat finds."""

    def __init__(self) -> None:
        self.root = XmlNode(NodeType.ROOT, [], None, (0, 0))
        self.root.nodes.append(self.root)
        self._open = [self.root]
        self._texts: list[str] = []
        self._chars = 0

    def _add(self, kind: NodeType, name: str = "", value: str = "") -> XmlNode:
        parent, nodes = self._open[-1], self.root.nodes
        node = XmlNode(kind, nodes, parent, (len(nodes), 0), value=value, last=len(nodes))
        node.namespace, node.local, node.name = _names(name)
        nodes.append(node)
        parent.children.append(node)
        return node

    def begin(self, name: str, attributes: list[str]) -> None:
        if len(self._open) > XML_DEEP_MOST:
            raise TooMuch(f"at most {XML_DEEP_MOST} elements may be inside one another")
        element = self._add(NodeType.ELEMENT, name)
        element.begins = self._chars
        for place in range(0, len(attributes), 2):
            namespace, local, full = _names(attributes[place])
            element.attributes.append(
                XmlNode(
                    NodeType.ATTRIBUTE,
                    element.nodes,
                    element,
                    (element.order[0], place + 1),
                    name=full,
                    local=local,
                    namespace=namespace,
                    value=attributes[place + 1],
                )
            )
        self._open.append(element)

    def end(self, _name: str) -> None:
        element = self._open.pop()
        element.last, element.ends = len(self.root.nodes) - 1, self._chars

    def text(self, data: str) -> None:
        self._texts.append(data)
        self._chars += len(data)
        children = self._open[-1].children
        if children and children[-1].type is NodeType.TEXT:
            children[-1].value += data
        else:
            self._add(NodeType.TEXT, value=data)

    def instruction(self, target: str, data: str) -> None:
        self._add(NodeType.INSTRUCTION, target, data)

    def finished(self) -> XmlNode:
        self.root.last, self.root.ends = len(self.root.nodes) - 1, self._chars
        self.root.value = "".join(self._texts)
        return self.root


def _names(name: str) -> tuple[str, str, str]:
    """Namespace, local name, and the name as written, of what expat calls a name."""
    parts = name.split(_SEPARATOR)
    if len(parts) == 1:
        return "", name, name
    prefix = f"{parts[2]}:" if len(parts) > 2 else ""
    return parts[0], parts[1], prefix + parts[1]


def read(text: str) -> XmlNode:
    """The root of a document.

    Raises:
        NoXml: the text is no XML, or one with entities from elsewhere.
        TooMuch: more elements are inside one another than `XML_DEEP_MOST`.
    """
    reader = _Reader()
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.namespace_prefixes = True
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.ProcessingInstructionHandler = reader.instruction
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, ValueError) as error:
        raise NoXml(str(error)) from None
    return reader.finished()
