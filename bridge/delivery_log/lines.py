"""One line of the delivery log: positions of a stream that were sent or received, in the format of the
contract.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.messages.stream_names import planned_stream

#: Version of the line's format.
VERSION: Final = 1
#: The verdict of a line about positions that a target had confirmed, and does not have any more.
MISSING: Final = "missing"
#: The first bytes of every line, of any version.
START: Final = b'{"v":'
#: One in so many messages, or fewer, has an ID: then only their positions are computed.
_FEW: Final = 8

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Session:
    """An opening of a node's journal, as the lines of that opening name it.

    A journal that is restored from a backup goes on from an earlier line than its lost copy did. So a reader
    of both logs can tell which lines are of one and the same journal.
    """

    #: New at each opening.
    id: str
    #: The opening that wrote the line before this one's first, and that line's number; None: there is none.
    after: tuple[str, int] | None


class _Line(msgspec.Struct):
    """The field that every line of any version has; decoding it checks all of the text."""

    v: int


_decode = msgspec.json.Decoder(_Line).decode


def is_whole(text: bytes) -> bool:
    """Whether a file's line, with its newline, is complete: no end and no page of it is missing.

    Some 1 us for a line of 400 bytes.
    """
    if not (text.startswith(START) and text.endswith(b"}\n")):
        return False
    try:
        _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class LineWriter(msgspec.Struct, frozen=True, kw_only=True):
    """The part that the lines of one log share: the node, and the way to the target."""

    #: Name of the writing node.
    node: str
    #: Its UUID.
    node_id: str
    #: None for clients' messages.
    bridge: str | None
    #: Of the bridge; 0 where it has one.
    lane: int
    #: Name of the target.
    target: str
    #: Its store identity.
    store: str = ""
    #: Of the journal that writes; None: another store writes, and the keys are not written.
    session: Session | None = None


class Line(msgspec.Struct, kw_only=True):
    """One line, its fields in the order of the text; `writer` has those from `node` to `store`."""

    #: ``sent`` or ``received``.
    side: str
    writer: LineWriter
    #: Identity of the stream; for clients' messages the address's own. A line of a replay plan's messages
    #: also names the original stream, ``replays``; its positions are that stream's.
    stream: str
    #: Name at the side that writes.
    address: str
    #: First position covered.
    from_: int
    #: One beyond the last position covered.
    upto: int
    #: Positions that carried a message.
    runs: Runs = ()
    #: Positions that were refused for good.
    refused: Sequence[int] = ()
    #: Producers' IDs only, each with its position; None where the position of the first copy is not known.
    ids: Sequence[tuple[int | None, bytes]] = ()
    #: When the first and the last message were stored at the source, ms since the epoch.
    events: tuple[int, int]
    #: When the target committed, ms since the epoch by its clock; 0 where it is not known.
    committed: int
    #: Messages of the batch that the target knew already.
    duplicates: int
    #: True where the target's state at an opening shows what no line reports.
    recovered: bool = False
    #: On sent lines, the target's clock less this node's in ms, where it was measured; else None, and the key
    #: is not written.
    clock_offset: int | None = None
    #: Positions in `runs` that were left out because the target knew them; the key is not written where there
    #: are none.
    known: Runs = ()
    #: True where the target did not look up `ids`; else the key is not written.
    unchecked: bool = False
    #: Of the line in the writer's journal; written with its session.
    number: int = 0
    #: ``duplicate`` for a transaction that was rejected as a whole, `MISSING`; else None, and the key is not
    #: written.
    verdict: str | None = None

    @classmethod
    def of_batch(
        cls, side: str, writer: LineWriter, address: str, batch: Batch, *,
        committed: int, duplicates: int, rejected: Collection[int] = (),
    ) -> Line:  # fmt: skip
        """The line of a whole batch.

        `rejected`: indices of messages that were left out, because the target knew their producers' IDs.
        """
        return cls(
            side=side, writer=writer, stream=batch.stream, address=address, from_=batch.from_,
            upto=batch.upto, runs=batch.runs, refused=batch.refused, ids=_accepted_ids(batch, rejected),
            events=batch.events, committed=committed, duplicates=duplicates,
            known=run_arithmetic.join((at, at) for at in run_arithmetic.at(batch.runs, sorted(rejected))),
        )  # fmt: skip

    def encode(self) -> bytes:
        """The text as the contract writes it, without the newline."""
        writer = self.writer
        fields: dict[str, Any] = {
            "v": VERSION,
            "side": self.side,
            "node": writer.node,
            "node-id": writer.node_id,
            "bridge": writer.bridge,
            "lane": writer.lane,
            "stream": self.stream,
            "address": self.address,
            "target": writer.target,
            "store": writer.store,
            "from": self.from_,
            "upto": self.upto,
            "runs": self.runs,
            "refused": self.refused,
            "count": run_arithmetic.count(self.runs),
            "ids": [(position, _text(value)) for position, value in self.ids],
            "events": self.events,
            "committed": self.committed,
            "duplicates": self.duplicates,
            "recovered": self.recovered,
        }
        if self.clock_offset is not None:
            fields["clock-offset"] = self.clock_offset
        if self.known:
            fields["known"] = self.known
        if self.unchecked:
            fields["unchecked"] = True
        if writer.session is not None:
            fields["session"] = writer.session.id
            fields["number"] = self.number
            if writer.session.after is not None:
                fields["after"] = writer.session.after
        if self.verdict is not None:
            fields["verdict"] = self.verdict
        if (replayed := planned_stream(self.stream)) is not None:
            fields["replays"] = replayed
        return _encode(fields)


def _accepted_ids(batch: Batch, rejected: Collection[int]) -> list[tuple[int | None, bytes]]:
    """A batch's producers' IDs with their positions, less those of the messages at the indices `rejected`."""
    if batch.block is None or not batch.block.ids:
        return []
    kept = batch.block.ids
    if rejected:
        kept = tuple((index, value) for index, value in kept if index not in rejected)
    if len(kept) * _FEW > batch.count:  # one list of all positions is quicker than a search for each
        positions = list(run_arithmetic.positions(batch.runs))
        return [(positions[index], value) for index, value in kept]
    found = run_arithmetic.at(batch.runs, (index for index, _ in kept))
    return [(position, value) for position, (_, value) in zip(found, kept, strict=True)]


def _text(duplicate_id: bytes) -> str | dict[str, str]:
    try:
        return duplicate_id.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(duplicate_id).decode()}
