"""Notices: records in pages and back, and what is no notice."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import Malformed
from cluster.notices import NOTICE_BYTES, PAGES, Assembler, known_notice, pages
from cluster.record import HOPS, NODES, QUEUES_A_NODE, Announcement, Known, KnownNode, Place, Record, Version
from tests.unit.cluster.rig import A, B, C, record, uuid


def many(count: int = QUEUES_A_NODE) -> Record:
    return record(A, *(Place("orders.eu", f"queue-{number}", number % 3) for number in range(count)))


def through(bodies: list[bytes], assembler: Assembler | None = None) -> Announcement | Known | None:
    """The last notice's outcome; the others complete nothing."""
    assembler = assembler or Assembler()
    *first, last = bodies
    assert [assembler.take(body) for body in first] == [None] * len(first)
    return assembler.take(last)


def raw(*fields: object) -> bytes:
    return msgspec.msgpack.encode(list(fields))


@pytest.mark.parametrize("path", [None, (), (B,), (B, C)])
def test_a_small_record_is_one_page(path: tuple[str, ...] | None) -> None:
    said = Announcement(record(A, Place("orders", "q", 1, "colour = 'ü'"), inherited=(C,)), path)
    (body,) = pages(said)
    assert Assembler().take(body) == said


def test_ten_thousand_queues_come_back_as_they_were() -> None:
    said = Announcement(many(), (B,))
    bodies = pages(said)
    assert 5 < len(bodies) < 16
    assert max(map(len, bodies)) <= NOTICE_BYTES
    assert through(bodies) == said


def test_the_longest_record_fits_its_pages() -> None:
    wide = "\N{GRINNING FACE}"
    places = [Place(f"{number:05}" + "a" * 244, wide * 255, 2**53, wide * 4096) for number in range(20)]
    full = msgspec.structs.replace(
        record(A, *places, inherited=tuple(uuid(number + 100) for number in range(NODES))),
        name=wide * 255,
        store=wide * 255,
        url=wide * 1024,
        heir=B,
        version=Version(2**53, 2**53),
    )
    said = Announcement(full, tuple(uuid(number + 200) for number in range(HOPS)))
    bodies = pages(said)
    assert len(bodies) == len(places) // 2
    assert max(map(len, bodies)) <= NOTICE_BYTES
    assert PAGES * 2 == QUEUES_A_NODE
    assert through(bodies) == said


def test_what_is_known_comes_back_as_it_was() -> None:
    known = Known(
        (
            KnownNode(A, Version(3, 4), 0),
            KnownNode(B, Version(0, 0)),
            KnownNode(C, Version(1, 1), 65, 2**32 - 1),
        )
    )
    assert Assembler().take(known_notice(known)) == known
    full = Known(
        tuple(KnownNode(uuid(number), Version(2**53, 2**53), 65, 2**32 - 1) for number in range(NODES))
    )
    assert Assembler().take(known_notice(full)) == full


def test_known_may_come_between_pages() -> None:
    said = Announcement(many())
    first, *rest = pages(said)
    assembler = Assembler()
    assert assembler.take(first) is None
    assert assembler.take(known_notice(Known(()))) == Known(())
    assert through(rest, assembler) == said


@pytest.mark.parametrize("fault", ["lost", "repeated", "swapped", "of another version"])
def test_a_record_with_a_page_out_of_turn_is_dropped_and_comes_when_it_is_told_again(fault: str) -> None:
    said = Announcement(many())
    bodies = pages(said)
    newer = pages(Announcement(msgspec.structs.replace(said.record, version=Version(1, 2))))
    broken = {
        "lost": [*bodies[:2], *bodies[3:]],
        "repeated": [*bodies[:3], bodies[2], *bodies[3:]],
        "swapped": [*bodies[:2], bodies[3], bodies[2], *bodies[4:]],
        "of another version": [*bodies[:2], newer[2], *bodies[3:]],
    }[fault]
    assembler = Assembler()
    assert through(broken, assembler) is None
    assert through(bodies, assembler) == said


def test_a_new_first_page_begins_anew() -> None:
    said = Announcement(many())
    bodies = pages(said)
    assembler = Assembler()
    assert [assembler.take(body) for body in bodies[:3]] == [None] * 3
    assert through(bodies, assembler) == said


def test_pages_with_more_places_than_a_node_may_have_are_refused_before_the_last() -> None:
    places = [[f"a{number}", "q", 0, "", "ANYCAST"] for number in range(1000)]
    assembler = Assembler()
    head = [record(A), None]
    for page in range(10):
        body = raw("NODE", page, 99, A, [1, 1], head if page == 0 else None, places)
        assert assembler.take(body) is None
    with pytest.raises(Malformed, match="places: at most 10000; found 11000") as refused:
        assembler.take(raw("NODE", 10, 99, A, [1, 1], None, places))
    assert (refused.value.key, refused.value.limit, refused.value.found) == ("places", 10_000, 11_000)


def test_a_notice_above_its_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(Malformed, match="notice: at most 49152; found 49153"):
        Assembler().take(b"\xc1" * (NOTICE_BYTES + 1))


def page(**changes: object) -> bytes:
    fields = {"page": 0, "pages": 1, "node": A, "version": [1, 1], "head": [record(A), None], "places": []}
    return raw("NODE", *(fields | changes).values())


def headed(**changes: object) -> bytes:
    return page(head=[msgspec.structs.replace(record(A), **changes), None])


HOSTILE = {
    "no bytes": (b"", "cannot be read"),
    "no array": (raw(), "cannot be read"),
    "another name": (raw("NEWS", 1), "cannot be read"),
    "nested": (b"\x95\xa5KNOWN" + b"\x91" * 40_000, "cannot be read"),
    "more bytes": (page() + b"\x00", "cannot be read"),
    "not UTF-8": (raw("NODE", 0, 1, b"\xff").replace(b"\xc4\x01\xff", b"\xa1\xff"), "cannot be read"),
    "text for a number": (page(page="0"), "cannot be read"),
    "yes for a number": (page(page=True), "cannot be read"),
    "no page": (page(pages=0), "page: 0 to -1; found 0"),
    "too many pages": (page(pages=PAGES + 1), "pages: 0 to 5000; found 5001"),
    "a page beyond the last": (page(page=1, head=None), "page: 0 to 0; found 1"),
    "a node without a UUID": (page(node="../etc"), "node: a UUID"),
    "a UUID in upper case": (page(node=uuid(10).upper()), "node: a UUID"),
    "a negative counter": (page(version=[1, -1]), "version.counter: 0 to"),
    "a huge opening": (page(version=[2**60, 1]), "version.opening: 0 to"),
    "no head": (page(head=None), "head: on page 0"),
    "a head later": (page(page=1, pages=2), "head: on page 0"),
    "a head of another": (page(head=[record(B), None]), "head: of the page's node"),
    "a head with places": (page(head=[record(A, Place("a", "b")), None]), "head.places: at most 0; found 1"),
    "no name": (headed(name=""), "name: 1 to 255 characters; found 0"),
    "a long name": (headed(name="n" * 256), "name: 1 to 255 characters; found 256"),
    "a long store": (headed(store="n" * 256), "store: 1 to 255 characters; found 256"),
    "a long URL": (headed(url="u" * 1025), "url: 1 to 1024 characters; found 1025"),
    "a run that is no UUID": (headed(run="x"), "run: a UUID"),
    "an heir that is no UUID": (headed(heir="x"), "heir: a UUID"),
    "another state": (headed(state="ASLEEP"), "cannot be read"),
    "too many inherited": (headed(inherited=(B,) * 65), "inherited: at most 64; found 65"),
    "a path of its node": (page(head=[record(A), [A]]), "path: no node twice"),
    "a path with a node twice": (page(head=[record(A), [B, C, B]]), "path: no node twice"),
    "a path of no UUIDs": (page(head=[record(A), ["b"]]), "path: a UUID"),
    "a long path": (page(head=[record(A), [uuid(n) for n in range(99, 164)]]), "path: at most 64; found 65"),
    "another routing type": (page(places=[["a", "q", 0, "", "BOTH"]]), "cannot be read"),
    "an own address": (page(places=[["$sf.x", "q"]]), "the node's own"),
    "a long queue": (page(places=[["a", "q" * 256]]), "places.queue: 1 to 255 characters; found 256"),
    "a place twice": (page(places=[["a", "q"], ["a", "q"]]), "no queue twice"),
    "places of a node that left": (
        page(head=[msgspec.structs.replace(record(A), state="LEFT"), None], places=[["a", "q"]]),
        "places: at most 0; found 1",
    ),
    "too many known": (
        raw("KNOWN", [[uuid(number), [1, 1]] for number in range(65)]),
        "nodes: at most 64; found 65",
    ),
    "known twice": (raw("KNOWN", [[A, [1, 1]]] * 2), "nodes: no node twice"),
    "known without a UUID": (raw("KNOWN", [["a", [1, 1]]]), "nodes.node: a UUID"),
    "too far": (raw("KNOWN", [[A, [1, 1], 66]]), "nodes.distance: 0 to 65; found 66"),
    "no checksum": (raw("KNOWN", [[A, [1, 1], 1, 2**32]]), "nodes.way: 0 to"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_notice_is_malformed_and_says_why(case: str) -> None:
    body, says = HOSTILE[case]
    with pytest.raises(Malformed, match=says) as refused:
        Assembler().take(body)
    assert refused.value.key is not None
    assert refused.value.limit is not None


def test_fields_that_a_later_version_appends_are_ignored() -> None:
    known = Assembler().take(raw("KNOWN", [[A, [1, 1, "new"], 0, 0, "new"]], "new"))
    assert known == Known((KnownNode(A, Version(1, 1), 0),))
    said = Assembler().take(page(places=[["a", "q", 0, "", "ANYCAST", {"new": 1}]]))
    assert said == Announcement(record(A, Place("a", "q", routing_type="ANYCAST")), None)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.sampled_from([A, B, "NODE", "KNOWN", "UP", "LEFT", "ANYCAST"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=30,
)


@given(
    st.lists(st.binary(max_size=200) | st.builds(raw, st.sampled_from(["NODE", "KNOWN"]), VALUES), max_size=5)
)
def test_hostile_bytes_raise_nothing_but_malformed(bodies: list[bytes]) -> None:
    assembler = Assembler()
    for body in bodies:
        with suppress(Malformed):
            assembler.take(body)


def test_damaged_notices_raise_nothing_but_malformed(rng: Random) -> None:
    whole = [*pages(Announcement(many(300), (B,))), known_notice(Known((KnownNode(A, Version(1, 1), 0),)))]
    assembler, refused = Assembler(), 0
    for _ in range(3_000):
        body = bytearray(rng.choice(whole))
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(min(len(body), 400))] = rng.randrange(256)
        try:
            assembler.take(bytes(body[: rng.choice([len(body), len(body), rng.randrange(len(body))])]))
        except Malformed:
            refused += 1
    assert refused > 500
