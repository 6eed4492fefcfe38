"""What a hostile peer does on a link: each case is a name, what it does, and how the node may end it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import cramjam
import msgspec

from tests.hostile.peer import PATIENCE_S, Batch, Gone, Hello, Peer, block, frame_head, message

MIB: Final = 1024 * 1024
TOKEN: Final = "s3cret-hostile"
#: The largest body of a NOTICE, by the document.
NOTICE_MOST: Final = 49_152
#: Makes every stream a new one, in a process and between processes.
_numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    """One thing to try on the node at a port."""

    name: str
    #: Does it; answers the code of the CLOSE that came, or what a case says instead.
    attack: Callable[[int], str]
    #: What it may answer; empty: anything.
    ends: tuple[str, ...] = ()


def stream() -> str:
    """An identity that no case has used."""
    return f"journal:{random.getrandbits(64):016x}:orders:{next(_numbers)}"


def opened(port: int, address: str = "orders", **hello: Any) -> Peer:
    """A peer with a stream open at index 0."""
    peer = Peer(port, TOKEN)
    assert peer.hello(**hello)[0] == "WELCOME"
    peer.identity = stream()
    assert peer.open(peer.identity, address)[0] == "OPENED"
    return peer


def _closing(act: Callable[[Peer], None], begin: Callable[[int], Peer]) -> Callable[[int], str]:
    def attack(port: int) -> str:
        peer = begin(port)
        try:
            act(peer)
            return peer.ending()
        except TimeoutError:
            return "NOTHING"
        except Gone:
            return "GONE"
        finally:
            peer.close()

    return attack


def _silent(port: int) -> Peer:
    return Peer(port, TOKEN)


def _greeted(port: int) -> Peer:
    peer = Peer(port, TOKEN)
    assert peer.hello()[0] == "WELCOME"
    return peer


#: How far a link has come, and the frames that may come then.
STATES: Final[dict[str, tuple[Callable[[int], Peer], frozenset[str]]]] = {
    "at-first": (_silent, frozenset({"HELLO", "CLOSE"})),
    "greeted": (_greeted, frozenset({"OPEN", "PING", "PONG", "NOTICE", "CLOSE"})),
    "opened": (opened, frozenset({"OPEN", "BATCH", "BODY", "PING", "PONG", "NOTICE", "CLOSE"})),
}
FRAMES: Final[dict[str, list[Any]]] = {
    "HELLO": ["HELLO", *Hello().fields()],
    "WELCOME": ["WELCOME", 1, "n", "hub", "store", 10, 10, 10],
    "OPEN": ["OPEN", 1, "journal:a:orders:0", "orders", "orders", ""],
    "OPENED": ["OPENED", 0, None, "", 0, 1],
    "BATCH": Batch().fields(),
    "BODY": ["BODY", 0, 0, 10, 0, b"x"],
    "STOP_BODY": ["STOP_BODY", 0, 0, "not-now"],
    "RECEIPT": ["RECEIPT", 0, "stored", 1],
    "CREDIT": ["CREDIT", 2**53],
    "PING": ["PING", 1, 1],
    "PONG": ["PONG", 1, 1, 1],
    "NOTICE": ["NOTICE", b"x"],
    "CLOSE": ["CLOSE", "GOODBYE", "", False],
}


def out_of_turn() -> Iterator[Case]:
    """Every frame in every state that does not allow it."""
    for state, (begin, allowed) in STATES.items():
        for name, fields in FRAMES.items():
            if name not in allowed:
                act = lambda peer, fields=fields: peer.send(*fields)  # noqa: E731
                yield Case(f"{name} {state}", _closing(act, begin), ("PROTOCOL",))


#: Values that no field can have, or that are at its edge.
ODD: Final[tuple[Any, ...]] = (
    None,
    -1,
    2**53 + 1,
    2**63,
    1.5,
    "",
    "x" * 20_000,
    b"x",
    [],
    [[[]]],
    {},
    True,
    [[0, 2**60]],
    [-1],
)
_BATCH_FIELDS: Final = (
    "number", "index", "from_", "upto", "runs", "refused", "checksum", "events", "count", "largest",
    "block_checksum", "ids", "origins", "body", "hops",
)  # fmt: skip


def odd_fields() -> Iterator[Case]:
    """Every field of HELLO, OPEN, NOTICE, BODY and BATCH with values of every kind.

    The node ends the link, or takes it.
    """
    for place, value in itertools.product(range(1, 14), ODD):
        fields = list(FRAMES["HELLO"])
        fields[place] = value
        yield Case(f"HELLO[{place}]={value!r:.20}", _maybe(_silent, fields))
    for place, value in itertools.product(range(1, 6), ODD):
        fields = list(FRAMES["OPEN"])
        fields[1], fields[place] = 0, value
        yield Case(f"OPEN[{place}]={value!r:.20}", _maybe(_greeted, fields))
    for place, value in itertools.product(range(1, 6), ODD):
        fields = list(FRAMES["BODY"])
        fields[place] = value
        yield Case(f"BODY[{place}]={value!r:.20}", _maybe(opened, fields))
    for value in ODD:
        yield Case(f"NOTICE[1]={value!r:.20}", _maybe(_greeted, ["NOTICE", value]))
    for place, value in itertools.product(range(1, 16), ODD):
        fields = Batch().fields()
        fields[place] = value
        yield Case(f"BATCH[{place}]={value!r:.20}", _maybe(opened, fields))


def _maybe(begin: Callable[[int], Peer], fields: list[Any]) -> Callable[[int], str]:
    """Send it and go on; end the link by a frame that is none, so that the node has acted on all of it."""

    def act(peer: Peer) -> None:
        try:
            data = msgspec.msgpack.encode(fields)
        except (OverflowError, msgspec.MsgspecError):
            data = b"\xc1"
        peer.binary(data)
        peer.binary(b"\xc1")

    return _closing(act, begin)


_LIES: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "runs beyond the batch": ({"runs": [[0, 2**49]], "upto": 2**50 - 1}, ("PROTOCOL",)),
    "2^49 messages in a body of one": (
        {"runs": [[0, 2**49 - 1]], "upto": 2**49, "count": 2**49, "ids": [[0, b"i"]],
         "body": b"\xdd\xff\xff\xff\xff" + message(), "largest": 6},
        ("PROTOCOL",),
    ),
    "as many messages as there may be, in one": (
        {"runs": [[0, 2**18 - 1]], "upto": 2**18, "count": 2**18, "ids": [[0, b"i"]],
         "body": b"\xdd\x00\x04\x00\x00" + message(), "largest": 6},
        ("PROTOCOL",),
    ),
    "an origin at 2^50": ({"origins": [["journal:a:b:0", 2**50, 2**50]]}, ("PROTOCOL",)),
    "origins without end": ({"origins": [["journal:a:b:0", 0, 2**50 - 1]]}, ("PROTOCOL",)),
    "hops of more messages": ({"hops": [[2**53, b"12345678"]]}, ("PROTOCOL",)),
    "a body of integers": ({"elements": (b"\x01",)}, ("PROTOCOL", "MALFORMED")),
    "a body of texts": ({"elements": (b"\xa1x", b"\xa1y")}, ("MALFORMED",)),
    "a text for a body": ({"elements": (b"\x94\xa1t\xc0\x90\x01",)}, ("MALFORMED",)),
    "a message without a body": ({"elements": (b"\x90\x90",)}, ("PROTOCOL", "MALFORMED")),
    "a header that is no text": ({"elements": (message(headers=[[b"n", b"v"]]),)}, ("MALFORMED",)),
    "a name of no characters": ({"elements": (b"\x94\xc0\xc0\x91\x92\xa1\xff\xc0\xff",)}, ("MALFORMED",)),
    "a time beyond all times": ({"elements": (message(timestamp=2**64 - 1),)}, ("MALFORMED",)),
    "arrays in arrays": ({"elements": (b"\x91" * 100_000 + b"\xc0",)}, ("MALFORMED",)),
    "a checksum of another message": ({"block_checksum": 1}, ("MALFORMED",)),
    "a largest that is none": (
        {"elements": (message(b"x" * 9), message(b"")), "largest": 12}, ("MALFORMED",),
    ),
    "bytes behind the body": ({"body": block(message()) + b"\xc0", "largest": 7}, ("PROTOCOL", "MALFORMED")),
    "a body that ends early": (
        {"body": block(message(b"x" * 9))[:-3], "largest": 15}, ("PROTOCOL", "MALFORMED"),
    ),
}  # fmt: skip


def lies() -> Iterator[Case]:
    """Fields that do not say what is there: as a new batch, and as one that was covered before."""
    for name, (fields, ends) in _LIES.items():
        act = lambda peer, fields=fields: _lie(peer, fields)  # noqa: E731
        yield Case(name, _closing(act, opened), ends)
        yield Case(f"{name}, covered before", _closing(act, _covered), ends)


def _lie(peer: Peer, fields: dict[str, Any]) -> None:
    """A batch that is to be answered by the end of the link, not by a receipt."""
    frame = peer.deliver(**fields)
    assert frame[0] != "RECEIPT", (fields, frame)
    peer.ended = frame[1]


def _covered(port: int) -> Peer:
    """A peer whose stream is covered as far as positions go, on a link of its own."""
    peer = Peer(port, TOKEN)
    identity = stream()
    peer.hello()
    peer.open(identity)
    covering = {"upto": 2**50, "runs": [], "elements": (), "body": b""}
    assert peer.deliver(**covering)[2] == "stored"
    peer.close()
    again = Peer(port, TOKEN)
    again.hello()
    assert again.open(identity)[2] == 2**50
    return again


# -- too much ----------------------------------------------------------------------------------------------


def _lists(peer: Peer, place: int, entry: bytes) -> None:
    """One frame as large as is taken, of the smallest entries of one list."""
    parts = [msgspec.msgpack.encode(value) for value in Batch().fields()]
    number = (19 * MIB) // len(entry)
    parts[place] = b"\xdd" + number.to_bytes(4, "big") + entry * number
    peer.binary(b"\xdc" + len(parts).to_bytes(2, "big") + b"".join(parts))


def _coverage(peer: Peer) -> None:
    """Coverage costs no credit: as much of it as is taken unanswered, with all the lists it may have."""
    for number in range(60):
        positions = list(range(number * 100_000, (number + 1) * 100_000))
        peer.batch(
            number=number, from_=positions[0], upto=positions[-1] + 1, refused=positions, runs=[],
            elements=(), body=b"",
        )  # fmt: skip
        if number % 20 == 19:
            peer.until("RECEIPT")
    peer.binary(b"\xc1")


def _flood(data: bytes, times: int) -> Callable[[Peer], None]:
    """What is to be answered, and none of the answers is read: the node must stop to take it.

    `times` is so often that frames and answers each are more than the kernel keeps for a connection.
    """

    def act(peer: Peer) -> None:
        taken = peer.push(data * 100, times // 100)
        peer.close()
        assert not taken, "the node took all of it, and keeps the answers"
        raise Gone("left")

    return act


def _opens(peer: Peer) -> None:
    """OPENs whose answers are as long as they may be."""
    run = "r" * 255
    peer.identity = stream()
    assert peer.open(peer.identity, run=run)[0] == "OPENED"
    assert peer.deliver()[2] == "stored"
    _flood(_framed(["OPEN", 0, peer.identity, "orders", "orders", run]), 60_000)(peer)


def _ids(peer: Peer) -> None:
    """An ID that no client may set: its message is refused, by position."""
    for value in (b"", b"x" * MIB, b"x" * 1025):
        number = peer.numbers
        peer.numbers += 1
        receipt = peer.deliver(number=number, ids=[[0, value]])
        assert receipt[:3] == ["RECEIPT", number, "refused"], receipt
        assert receipt[4] == 0, receipt
        assert receipt[5].startswith("INVALID_DUPLICATE_ID: an ID has 1 to 1024 bytes; found"), receipt
        assert peer.open(peer.identity)[0] == "OPENED"
    peer.binary(b"\xc1")


def _notices(size: int, times: int) -> Callable[[Peer], None]:
    """NOTICEs to a node that has no use for them: they are dropped, and what comes behind is answered."""

    def act(peer: Peer) -> None:
        assert peer.push(_framed(["NOTICE", bytes(size)]) * 100, times // 100, stuck_s=PATIENCE_S)
        peer.send("PING", 7, 7)
        assert peer.until("PONG", "CLOSE")[:2] == ["PONG", 7]
        assert peer.deliver()[2] == "stored"
        peer.send("NOTICE", bytes(NOTICE_MOST + 1))

    return act


#: Where a BATCH has lists, and the smallest entry of each.
_ENTRIES: Final = (
    (5, b"\x92\0\0"), (6, b"\0"), (12, b"\x92\0\xc4\0"), (13, b"\x93\xa0\0\0"), (15, b"\x92\0\xc4\0"),
)  # fmt: skip


def too_much() -> Iterator[Case]:
    """Frames of every size, lists of every length, and questions whose answers are not read."""
    for place, entry in (
        (5, b"\x92\0\0"),
        (6, b"\0"),
        (12, b"\x92\0\xc4\0"),
        (13, b"\x93\xa0\0\0"),
        (15, b"\x92\0\xc4\0"),
    ):
        act = lambda peer, place=place, entry=entry: _lists(peer, place, entry)  # noqa: E731
        yield Case(f"{_BATCH_FIELDS[place - 1]} of 19 MiB", _closing(act, opened), ("PROTOCOL",))
    path = b"\x9c\xa5HELLO" + b"\x01" * 10 + b"\xdd\x00\x40\x00\x00" + b"\x92\xa0\xa0" * (4 * MIB)
    yield Case("HELLO.path of 12 MiB", _closing(lambda peer: peer.binary(path), _silent), ("PROTOCOL",))
    large = lambda peer: peer.raw(frame_head(21 * MIB) + bytes(MIB))  # noqa: E731
    yield Case("a frame above max_frame_size", _closing(large, opened))
    yield Case("coverage that is all lists", _closing(_coverage, opened), ("PROTOCOL",))
    yield Case("IDs that no client may set", _closing(_ids, opened), ("PROTOCOL",))
    yield Case(
        "PINGs, and nothing is read", _closing(_flood(_framed([*FRAMES["PING"], bytes(48)]), 400_000), opened)
    )
    yield Case("OPENs, and nothing is read", _closing(_opens, _greeted))
    for size, times in ((0, 10_000), (100, 10_000), (NOTICE_MOST, 2_000)):
        name = f"{times} NOTICEs of {size} bytes, and one that is too large"
        yield Case(name, _closing(_notices(size, times), opened), ("PROTOCOL",))
    ping = frame_head(125, 0x9) + bytes(125)
    yield Case("WebSocket pings, and nothing is read", _closing(_flood(ping, 200_000), opened))


def _framed(fields: list[Any]) -> bytes:
    data = msgspec.msgpack.encode(fields)
    return frame_head(len(data)) + data


# -- half a connection, and old ones -------------------------------------------------------------------------


def _half(data: bytes) -> Callable[[int], str]:
    """Begin something, and leave."""

    def attack(port: int) -> str:
        peer = Peer(port, upgrade=False)
        peer.raw(data)
        peer.close()
        return "left"

    return attack


def _older_epoch(port: int) -> str:
    """A batch on a link behind whose back the stream was opened again."""
    old, new, identity = Peer(port, TOKEN), Peer(port, TOKEN), stream()
    try:
        for peer in (old, new):
            peer.hello()
            assert peer.open(identity)[0] == "OPENED"
        old.batch()
        ended = old.ending()
        assert new.deliver()[2] == "stored"
        return ended
    finally:
        old.close()
        new.close()


def half_open() -> Iterator[Case]:
    """Connections that say too little, and links that were succeeded by others."""
    yield Case("nothing", _half(b""))
    yield Case("half a request", _half(b"GET /v1/link HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgr"))
    yield Case("half a frame", _closing(_leave(frame_head(16 * MIB) + bytes(8 * MIB)), opened))
    yield Case(
        "fragments without an end",
        _closing(_leave(b"\x02\x81\0\0\0\0x" + b"\x00\x81\0\0\0\0x" * 10_000), opened),
    )
    yield Case("a text", _closing(lambda peer: peer.binary(b"text", opcode=1), opened), ("PROTOCOL",))
    yield Case("an older epoch", _older_epoch, ("FENCED",))


def _leave(data: bytes) -> Callable[[Peer], None]:
    def act(peer: Peer) -> None:
        peer.raw(data)
        peer.close()
        raise Gone("left")

    return act


# -- compressed frames ---------------------------------------------------------------------------------------


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=1))


def _offering(port: int) -> Peer:
    return opened(port, compression=("zstd",))


def _bombs(peer: Peer) -> None:
    """Batches of 19 MiB that are some kB on the line: each is unpacked, and refused or stored whole."""
    packed = _zstd(msgspec.msgpack.encode(Batch(elements=(message(bytes(15 * MIB)),)).fields()))
    assert len(packed) < 16_384
    peer.binary(packed)
    assert peer.until("RECEIPT", "CLOSE")[2] == "stored"
    peer.binary(_zstd(bytes(19 * MIB)))


def compressed() -> Iterator[Case]:
    """Frames that unpack to too much, to no frame, or with too much memory."""
    magic, huge = b"\x28\xb5\x2f\xfd", 2**31
    batch = msgspec.msgpack.encode(Batch().fields())
    block = (1 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    frames = {
        "a content of 2 GiB": magic + b"\xa0" + huge.to_bytes(4, "little") + block * 4,
        "a content of 21 MiB": _zstd(bytes(21 * MIB)),
        "a window of 2 TiB": magic + b"\x80\xf8" + (5).to_bytes(4, "little") + block,
        "a window of 128 MiB": magic + b"\x80\x88" + (5).to_bytes(4, "little") + block,
        "no content size": magic + b"\x00\x00" + block,
        "a dictionary": magic + b"\xa1\x07" + (5).to_bytes(4, "little") + block,
        "six million empty blocks": magic + b"\xa0" + (5).to_bytes(4, "little") + bytes(18 * MIB),
        "a second frame": _zstd(batch) + _zstd(b""),
        "a skippable frame behind": _zstd(batch) + b"\x50\x2a\x4d\x18\x00\x00\x00\x00",
        "a torn frame": _zstd(batch)[:-1],
        "a frame in a frame": _zstd(_zstd(batch)),
        "a PING": _zstd(msgspec.msgpack.encode(["PING", 1, 1])),
        "no frame": _zstd(bytes(19 * MIB)),
    }
    for name, data in frames.items():
        act = lambda peer, data=data: peer.binary(data)  # noqa: E731
        yield Case(f"compressed: {name}", _closing(act, _offering), ("PROTOCOL",))
    yield Case(
        "compressed, and not agreed on",
        _closing(lambda peer: peer.binary(_zstd(batch)), opened),
        ("PROTOCOL",),
    )
    yield Case("compressed: a message of 15 MiB, then none", _closing(_bombs, _offering), ("PROTOCOL",))


# -- another's names -----------------------------------------------------------------------------------------


def _refused(address: str) -> Callable[[int], str]:
    return _closing(lambda peer: peer.send("OPEN", 0, stream(), address, address), _greeted)


def names() -> Iterator[Case]:
    """Addresses that the user may not send to, and names that are no addresses."""
    for address in ("payments", "dead-letters", "$replay/a/b", "core-bridge.x", "a b", "ö", "..", "a/b"):
        yield Case(f"OPEN of {address}", _refused(address), ("TARGET_REFUSED",))


def link_cases() -> list[Case]:
    """All of them."""
    return [*out_of_turn(), *odd_fields(), *lies(), *too_much(), *half_open(), *compressed(), *names()]
