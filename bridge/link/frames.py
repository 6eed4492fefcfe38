"""The frames of the node link: msgpack arrays that begin with the frame's name.

A frame is an array ``[name, field, ...]``. A reader ignores elements after the fields it knows, and takes the
default of a field that is missing at the end: so a version may get new fields. Specified in
`docs/wire-protocol.md`, which a test holds against this module. `bridge.link.codec` reads and writes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bridge.errors import Malformed
from bridge.link import limits
from bridge.messages.addresses import WantedType
from bridge.messages.block import IndexedId, Origin
from bridge.messages.hops import HopsRun
from bridge.messages.positions import Run
from dedup.verdict import Verdict


class BrokenFrame(Malformed):
    """A received message is no frame, breaks a limit, or is not allowed now: the link closes with
    PROTOCOL.
    """

    code = "PROTOCOL"


class CloseCode(StrEnum):
    """The reason why an end closes a link. Codes that a reader does not know mean `TARGET_UNAVAILABLE`."""

    #: The sender needs the link no longer.
    GOODBYE = "GOODBYE"
    #: The receiving node is going down, or the credentials that opened the link hold no longer.
    STOPPING = "STOPPING"
    #: A frame was broken or not allowed.
    PROTOCOL = "PROTOCOL"
    #: The ends speak different versions.
    VERSION = "VERSION"
    #: No byte for `connection-ttl`.
    SILENT = "SILENT"
    #: The bytes of a frame came below the lowest rate.
    TOO_SLOW = "TOO_SLOW"
    #: The handshake or an OPEN was not answered within `call-timeout`.
    TIMEOUT = "TIMEOUT"
    #: A batch began beyond the target's next.
    OUT_OF_SEQUENCE = "OUT_OF_SEQUENCE"
    #: A newer link has opened the stream.
    FENCED = "FENCED"
    #: The target cannot say whether it stored a batch.
    TARGET_UNAVAILABLE = "TARGET_UNAVAILABLE"
    #: The target does not serve this bridge.
    TARGET_REFUSED = "TARGET_REFUSED"
    #: A batch does not fit into a frame that the receiver takes: `producer-window-size` is too large for it.
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"
    #: An unforeseen error; the receiving node's log has it.
    INTERNAL = "INTERNAL"


# The length limit of a list is part of its type: msgspec checks the length before it makes the first entry.
_ENTRIES: Final = Meta(max_length=limits.ENTRIES_MOST)
_Name = Annotated[str, Meta(max_length=limits.NAME_MOST)]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=limits.QUEUE_NAMES_MOST)]


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all frames."""


class Hello(Frame, frozen=True, tag="HELLO"):
    """The sender's first frame: which node is calling, for which bridge."""

    version: int
    node_id: str
    node_name: str
    #: Store identity of the sending node.
    store: str
    bridge: str
    check_producer_ids: bool
    use_duplicate_detection: bool
    #: Step in which the receiver grants credit, bytes.
    producer_window: int
    #: Ping after this long without a frame; -1: never. Milliseconds.
    check_period_ms: int
    #: Dead after this long without a frame; -1: never. Milliseconds.
    connection_ttl_ms: int
    #: Not used: hops travel with the messages (`BatchFrame.hops`). Always empty.
    path: Annotated[tuple[tuple[str, str], ...], Meta(max_length=limits.PATH_MOST)] = ()
    #: The bridge's former name (`previous-name`), whose positions it adopts; empty: none.
    previous: str = ""
    #: Bytes that the sender has on its way at most (`confirmation-window-size`), so that the receiver's
    #: credit does not stop it before; 0: it does not say.
    window: int = 0
    #: Compressions in which the sender can send batches and bodies.
    compression: Annotated[tuple[_Name, ...], Meta(max_length=limits.COMPRESSIONS_MOST)] = ()


class Welcome(Frame, frozen=True, tag="WELCOME"):
    """The receiver's answer to HELLO."""

    version: int
    node_id: str
    node_name: str
    #: Store identity of the receiving node.
    store: str
    #: Bytes of batches that may be sent before the first CREDIT.
    credit: int
    #: Largest message body taken in a BATCH, bytes.
    max_message_size: int
    #: Largest frame taken, bytes.
    max_frame_size: int
    #: Store identities of other nodes whose memory it has taken over: it answers for them.
    inherited: Annotated[tuple[_Name, ...], Meta(max_length=limits.INHERITED_MOST)] = ()
    #: Largest body taken in BODY frames, bytes; 0: none is.
    max_body_size: int = 0
    #: The one of HELLO's compressions that it takes; empty: none.
    compression: str = ""


class OpenStream(Frame, frozen=True, tag="OPEN"):
    """The sender is going to send batches of this stream."""

    #: The stream's number on this link: 0, 1, 2, … in the order of their first OPEN.
    index: int
    identity: str
    address: str
    target_address: str
    run: str = ""
    #: What the address becomes where it is made for this stream; empty: as the receiver's settings say.
    routing_type: WantedType = ""


class StreamOpened(Frame, frozen=True, tag="OPENED"):
    """The target's record of the stream."""

    index: int
    #: First position not covered; null: never seen.
    next: int | None
    run: str = ""
    checksum: int = 0
    epoch: int = 0
    #: Of a stream never seen: others of this bridge and source are remembered.
    has_run: bool = False
    #: What is kept of large bodies: position, bytes of the whole, bytes kept, and their BLAKE2b.
    bodies: Annotated[tuple[tuple[int, int, int, bytes], ...], Meta(max_length=limits.BODIES_MOST)] = ()


class BatchFrame(Frame, frozen=True, tag="BATCH"):
    """A whole batch."""

    #: 0, 1, 2, … on this link.
    number: int
    index: int
    from_: int
    upto: int
    runs: Annotated[tuple[Run, ...], _ENTRIES]
    refused: Annotated[tuple[int, ...], _ENTRIES]
    #: CRC-32 of the last covered source message.
    checksum: int
    #: First and last, ms since the epoch.
    events: tuple[int, int]
    count: int
    largest: int
    #: CRC-32 of the block's last message.
    block_checksum: int
    ids: Annotated[tuple[IndexedId, ...], Meta(max_length=limits.MESSAGES_MOST)]
    origins: Annotated[tuple[Origin, ...], _ENTRIES]
    #: The block's body; empty for coverage alone.
    body: bytes
    #: The bridges through which the messages have come, as runs; empty: none (`bridge.messages.hops`).
    hops: Annotated[tuple[HopsRun, ...], _ENTRIES] = ()
    #: Of a replay plan: positions whose message others equal, and how many of them the target should have.
    copies: Annotated[tuple[tuple[int, int], ...], _ENTRIES] = ()
    #: Names of the only queues that messages are for, as runs; no name: every queue. Empty: so are all.
    queues: Annotated[tuple[tuple[int, _Names], ...], Meta(max_length=limits.QUEUE_RUNS_MOST)] = ()


class BodyFrame(Frame, frozen=True, tag="BODY"):
    """A piece of the large body of the one message of the stream's next BATCH."""

    index: int
    #: Position of the message.
    position: int
    #: Bytes of the whole body, and of it before this piece.
    size: int
    start: int
    piece: bytes


class StopBody(Frame, frozen=True, tag="STOP_BODY"):
    """The receiver's word on a message before its BATCH has come: it takes no more of its large body."""

    index: int
    #: Position of the message.
    position: int
    #: REFUSED or NOT_NOW.
    verdict: Verdict
    reason: str = ""


class ReceiptFrame(Frame, frozen=True, tag="RECEIPT"):
    """The target's word on one batch; receipts come in the order of the batches."""

    number: int
    verdict: Verdict
    next: int
    position: int | None = None
    reason: str = ""
    duplicates: int = 0
    committed: int = 0


class Credit(Frame, frozen=True, tag="CREDIT"):
    """The receiver takes this many bytes more."""

    bytes: int


class Ping(Frame, frozen=True, tag="PING"):
    """Asks whether the other end is there. Answered with PONG at once."""

    number: int
    #: The asker's clock, ms since the epoch.
    sent: int


class Pong(Frame, frozen=True, tag="PONG"):
    """The answer, with both clocks, from which a clock offset is computed (as in RFC 5905)."""

    number: int
    #: From the PING.
    sent: int
    #: The answerer's clock when the PING came, ms since the epoch.
    received: int


class Notice(Frame, frozen=True, tag="NOTICE"):
    """Bytes for the extension at the other end. They cost no credit, and are not answered."""

    body: bytes


class Close(Frame, frozen=True, tag="CLOSE"):
    """The last frame of either end."""

    code: str
    detail: str = ""
    #: Trying again does not help.
    permanent: bool = False


AnyFrame = (
    Hello
    | Welcome
    | OpenStream
    | StreamOpened
    | BatchFrame
    | BodyFrame
    | StopBody
    | ReceiptFrame
    | Credit
    | Ping
    | Pong
    | Notice
    | Close
)


def name_of(frame: Frame | type[Frame]) -> str:
    """The frame's name on the wire."""
    return str(frame.__struct_config__.tag)


def clipped(text: str, most: int = limits.TEXT_MOST) -> str:
    """The text, cut short where it is longer than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
