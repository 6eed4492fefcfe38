"""Frames as their bytes come in, and the room that all links share."""

from __future__ import annotations

import random

import pytest

from bridge.link.arriving import Arriving
from bridge.link.room import LinkRoom

KIB = 1024
LARGEST = 64 * KIB
BINARY, CONTINUATION, PING = 2, 0, 9


def frame(size: int, opcode: int = BINARY, *, final: bool = True, masked: bool = True) -> bytes:
    """A WebSocket frame (RFC 6455, section 5.2) with so many bytes."""
    first = (0x80 if final else 0) | opcode
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes((first, mask | size))
    elif size < 1 << 16:
        head = bytes((first, mask | 126)) + size.to_bytes(2)
    else:
        head = bytes((first, mask | 127)) + size.to_bytes(8)
    return head + (b"mask" if masked else b"") + bytes(size)


def new_arriving(most: int = 1 << 30) -> tuple[Arriving, LinkRoom]:
    room = LinkRoom(most)
    return Arriving(room, LARGEST), room


def held(*links: Arriving) -> list[bool]:
    return [link.held for link in links]


def unfinished(*links: Arriving) -> list[bool]:
    return [link.is_unfinished for link in links]


def test_a_frame_counts_with_its_whole_length_from_its_header_on() -> None:
    arriving, room = new_arriving()
    data = frame(10 * KIB)
    arriving.add(data[:7])
    assert room.buffered == 0
    arriving.add(data[7:8])
    assert room.buffered == 10 * KIB
    assert unfinished(arriving) == [True]
    arriving.add(data[8:-1])
    assert unfinished(arriving) == [True]
    arriving.add(data[-1:])
    assert unfinished(arriving) == [False]
    assert arriving.taken(10 * KIB)
    assert room.buffered == 0


@pytest.mark.parametrize("masked", [True, False])
def test_any_cutting_of_the_bytes_gives_the_same_counts(masked: bool) -> None:
    rng = random.Random(44)
    for _ in range(200):
        sizes = [rng.choice((0, 1, 125, 126, 200, 65_535, 65_536)) for _ in range(rng.randint(1, 5))]
        data = b""
        for size in sizes:
            if rng.random() < 0.3:
                data += frame(rng.randint(0, 125), PING, masked=masked)
            cut = rng.randint(0, size)
            if rng.random() < 0.3:
                data += frame(cut, final=False, masked=masked) + frame(
                    size - cut, CONTINUATION, masked=masked
                )
            else:
                data += frame(size, masked=masked)
        arriving, room = new_arriving()
        at = 0
        while at < len(data):
            step = rng.choice((1, 2, 7, 1_000, 70_000))
            arriving.add(data[at : at + step])
            at += step
        assert unfinished(arriving) == [False]
        assert room.buffered == sum(min(size, LARGEST) for size in sizes)
        for size in sizes:
            assert arriving.taken(min(size, LARGEST))
        assert room.buffered == 0


def test_the_first_fragment_of_a_message_counts_as_the_largest_frame() -> None:
    arriving, room = new_arriving()
    arriving.add(frame(100, final=False))
    assert room.buffered == LARGEST
    arriving.add(frame(50, CONTINUATION, final=False) + frame(10, PING))
    assert room.buffered == LARGEST
    arriving.add(frame(7, CONTINUATION))
    assert room.buffered == 157
    assert arriving.taken(157)
    assert room.buffered == 0


def test_a_message_in_fragments_that_has_begun_is_read_to_its_end_in_a_full_room() -> None:
    arriving, room = new_arriving(most=KIB)
    arriving.add(frame(100, final=False))
    assert room.is_full
    assert held(arriving) == [False]
    arriving.add(frame(50, CONTINUATION)[:10])
    assert held(arriving) == [False]
    arriving.add(frame(50, CONTINUATION)[10:])
    assert room.buffered == 150


def test_a_header_that_promises_more_than_any_frame_has_counts_as_the_largest() -> None:
    arriving, room = new_arriving()
    arriving.add(frame(1 << 16)[:2] + (1 << 62).to_bytes(8))
    arriving.add(b"mask")
    assert room.buffered == LARGEST
    arriving.end()
    assert room.buffered == 0


def test_bytes_that_came_before_they_were_counted_are_noticed() -> None:
    arriving, room = new_arriving()
    arriving.add(frame(10))
    assert not arriving.taken(11)
    assert room.buffered == 0


def test_in_a_full_room_no_frame_begins_and_links_go_on_in_the_order_in_which_they_came() -> None:
    room = LinkRoom(KIB)
    links = [Arriving(room, LARGEST) for _ in range(4)]
    woken: list[int] = []
    for number, link in enumerate(links):
        link.wake = lambda number=number: woken.append(number)  # type: ignore[misc]
    links[0].add(frame(2 * KIB)[:100])
    assert held(links[0]) == [False], "one frame may go beyond"
    for link in links[1:3]:
        link.add(frame(2 * KIB)[:100])
    links[3].add(frame(10))
    assert held(*links) == [False, True, True, True]
    links[0].add(frame(2 * KIB)[100:])
    assert held(links[0]) == [True], "its next frame waits, behind the others"
    assert links[0].taken(2 * KIB)
    assert woken == [1]
    assert held(*links) == [True, False, True, True]
    links[1].end()
    assert woken == [1, 2]
    links[2].add(frame(2 * KIB)[100:])
    assert links[2].taken(2 * KIB)
    assert woken == [1, 2, 3, 0, 2], "there is room for all"
    assert room.buffered == 10


def test_what_comes_of_a_link_that_is_held_still_counts() -> None:
    """aiohttp, or TLS, may have read it already."""
    room = LinkRoom(KIB)
    room.take(KIB)
    link = Arriving(room, LARGEST)
    link.add(frame(2 * KIB)[:100])
    assert held(link) == [True]
    assert link.counted == 0
    link.add(frame(2 * KIB)[100:] + frame(10) + frame(100)[:20])
    assert link.counted == 2 * KIB + 10
    assert link.taken(2 * KIB)
    assert link.taken(10)
    room.give(KIB)
    assert held(link) == [False]
    assert link.counted == 100


def test_a_link_that_ends_while_it_is_held_is_admitted_no_more() -> None:
    room = LinkRoom(KIB)
    room.take(KIB)
    link = Arriving(room, LARGEST)
    link.add(frame(2 * KIB)[:100])
    link.end()
    room.give(KIB)
    assert room.buffered == 0


class Peer:
    """A sender, the connection, and the machine and target of one link."""

    def __init__(self, room: LinkRoom, rng: random.Random) -> None:
        self.rng = rng
        self.room = room
        self.arriving = Arriving(room, LARGEST)
        self.sizes = [rng.choice((3, 100, 5 * KIB, 20 * KIB, LARGEST)) for _ in range(rng.randint(1, 5))]
        self.data = b"".join(frame(size) for size in self.sizes)
        self.ends = [sum(len(frame(size)) for size in self.sizes[: n + 1]) for n in range(len(self.sizes))]
        self.at = 0
        self.whole: list[int] = []
        self.batches: list[int] = []
        self.slow = rng.random() < 0.5

    def read(self) -> None:
        """The connection brings what is there, where it is read."""
        if self.arriving.held:
            return
        before = self.at
        self.at = min(len(self.data), before + (self.rng.randint(1, 1_500) if self.slow else 8 * KIB))
        self.arriving.add(self.data[before : self.at])
        self.whole += [
            size for size, end in zip(self.sizes, self.ends, strict=True) if before < end <= self.at
        ]

    def take(self) -> None:
        """The machine takes a frame; what it keeps of it may be larger."""
        if self.whole:
            size = self.whole.pop(0)
            self.batches.append(size + size // 10)
            self.room.take(self.batches[-1])
            assert self.arriving.taken(size)

    def answer(self) -> None:
        if self.batches:
            self.room.give(self.batches.pop(0))

    @property
    def is_done(self) -> bool:
        return self.at == len(self.data) and not self.whole and not self.batches


@pytest.mark.parametrize("seed", range(15))
def test_all_links_end_their_frames_within_the_room_whatever_the_order(seed: int) -> None:
    rng = random.Random(seed)
    room = LinkRoom(rng.choice((1, 10 * KIB, LARGEST, 3 * LARGEST)))
    peers = [Peer(room, rng) for _ in range(rng.randint(1, 25))]
    one_read = 8 * KIB
    most = 0
    for _ in range(100_000):
        if all(peer.is_done for peer in peers):
            break
        peer = rng.choice(peers)
        rng.choice((peer.read, peer.read, peer.take, peer.answer))()
        most = max(most, room.buffered)
    assert all(peer.is_done for peer in peers), "no link waits for ever"
    assert room.buffered == 0
    beyond = LARGEST + len(peers) * one_read
    assert most <= (room.most + beyond) * 1.1 + LARGEST, (
        "one frame, twice while it is taken, and one read of each"
    )
