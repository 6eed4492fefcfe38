"""Notices between two neighbours, as bytes on their link: records in pages, and the nodes known. Pure.

A notice is a msgpack array that begins with its name, as the link's frames are. ``NODE`` is a page of a
record: the first has the record without its places, each has some places. ``KNOWN`` has all nodes in short. A
reader ignores elements after the fields that it knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from bridge.errors import Malformed
from cluster.record import (
    HOPS,
    NODES,
    QUEUES_A_NODE,
    Announcement,
    Known,
    KnownNode,
    Place,
    Record,
    Version,
    check_most,
    check_number,
    check_path,
    check_places,
    check_record,
    check_together,
    check_uuid,
    check_version,
)

#: Bytes of a notice.
NOTICE_BYTES: Final = 48 * 1024
#: Pages of a record: two places fit, however long their names and filters are.
PAGES: Final = QUEUES_A_NODE // 2
#: Bytes of a page beside its head and places, and more: names of fields are not written.
_PAGE_SLACK: Final = 128
#: Above every checksum of a way.
_CHECKSUM_MOST: Final = 2**32 - 1
_SHOWN: Final = "a notice of the cluster"


class _Notice(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all notices."""


class _Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record without its places, and its way (`Announcement.path`)."""

    record: Record
    path: tuple[str, ...] | None


class _Page(_Notice, frozen=True, tag="NODE"):
    """Page `page` of `pages`, from 0."""

    page: int
    pages: int
    node: str
    version: Version
    #: On the first page only.
    head: _Head | None
    places: tuple[Place, ...]


class _RawPage(_Notice, frozen=True, tag="NODE"):
    """A `_Page` whose parts are encoded already."""

    page: int
    pages: int
    node: str
    version: Version
    head: msgspec.Raw | None
    places: list[msgspec.Raw]


class _Known(_Notice, frozen=True, tag="KNOWN"):
    nodes: tuple[KnownNode, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[_Page | _Known]] = msgspec.msgpack.Decoder(_Page | _Known)


def pages(said: Announcement) -> list[bytes]:
    """The notices of an announcement, in order: each at most `NOTICE_BYTES`."""
    record = said.record
    head = _encoder.encode(_Head(msgspec.structs.replace(record, places=()), said.path))
    groups = list(_grouped(map(_encoder.encode, record.places), NOTICE_BYTES - _PAGE_SLACK, len(head)))
    return [
        _encoder.encode(
            _RawPage(
                page, len(groups), record.node, record.version, None if page else msgspec.Raw(head), group
            )
        )
        for page, group in enumerate(groups)
    ]


def _grouped(places: Iterable[bytes], room_bytes: int, used_bytes: int) -> Iterator[list[msgspec.Raw]]:
    """Divide places over pages; `used_bytes` of the first are taken."""
    group: list[msgspec.Raw] = []
    for place in places:
        if used_bytes + len(place) > room_bytes:
            yield group
            group, used_bytes = [], 0
        group.append(msgspec.Raw(place))
        used_bytes += len(place)
    yield group


def known_notice(known: Known) -> bytes:
    """The notice of what a node knows."""
    return _encoder.encode(_Known(known.nodes))


class Assembler:
    """Puts the notices of one link together: at most one record at a time, of at most `QUEUES_A_NODE` places.

    The pages of a record come one after the other. Where one is missing, comes twice or is of another record,
    what had come is dropped, and the record is told again: the neighbour hears in KNOWN that it is not there.
    """

    def __init__(self) -> None:
        self._head: _Head | None = None
        self._places: list[Place] = []
        #: The next page, and how many there are.
        self._next = 0
        self._pages = 0

    def take(self, body: bytes) -> Announcement | Known | None:
        """The announcement that the notice completes, or the nodes known; None: pages are missing.

        Raises:
            Malformed: it is no notice, or breaks a limit; names the field, the limit, and what was found.
        """
        check_most("notice", len(body), NOTICE_BYTES)
        try:
            notice = _decoder.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Malformed(
                f"{_SHOWN} cannot be read: {error}", "notice", _SHOWN, f"{len(body)} bytes"
            ) from error
        if isinstance(notice, _Known):
            return _checked_known(notice)
        _check_page(notice)
        return self._turned(notice)

    def _turned(self, page: _Page) -> Announcement | None:
        """Add a page to the record that it belongs to."""
        if page.head is not None:
            self._head, self._places, self._next, self._pages = page.head, [], 0, page.pages
        head = self._head
        if head is None:
            return None
        record = head.record
        if (record.node, record.version, self._next, self._pages) != (
            page.node, page.version, page.page, page.pages,
        ):  # fmt: skip
            self._drop()
            return None
        check_most("places", len(self._places) + len(page.places), QUEUES_A_NODE)
        self._places.extend(page.places)
        self._next += 1
        if self._next < self._pages:
            return None
        whole = msgspec.structs.replace(record, places=tuple(self._places))
        self._drop()
        check_together(whole)
        return Announcement(whole, head.path)

    def _drop(self) -> None:
        self._head, self._places, self._next, self._pages = None, [], 0, 0


def _check_page(page: _Page) -> None:
    check_number("pages", page.pages, PAGES)
    check_number("page", page.page, page.pages - 1)
    check_uuid("node", page.node)
    check_version("version", page.version)
    if (page.head is None) != (page.page > 0):
        found = "none" if page.head is None else f"one on page {page.page}"
        raise Malformed(f"head: on page 0 and on no other; found {found}", "head", "page 0", found)
    if page.head is not None:
        record = page.head.record
        check_record(record)
        check_path(record.node, page.head.path)
        check_most("head.places", len(record.places), 0)
        if (record.node, record.version) != (page.node, page.version):
            raise Malformed(
                f"head: of the page's node and version; found {record.node}", "head", page.node, record.node
            )
    check_places(page.places)


def _checked_known(notice: _Known) -> Known:
    check_most("nodes", len(notice.nodes), NODES)
    for one in notice.nodes:
        check_uuid("nodes.node", one.node)
        check_version("nodes.version", one.version)
        check_number("nodes.way", one.way, _CHECKSUM_MOST)
        if one.distance is not None:
            check_number("nodes.distance", one.distance, HOPS + 1)
    if len({one.node for one in notice.nodes}) < len(notice.nodes):
        raise Malformed("nodes: no node twice", "nodes", "no node twice")
    return Known(notice.nodes)
