"""One line of the delivery log: positions of a stream that were sent or received, in the format of the
contract.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bridge.messages import positions as run_arithmetic
from bridge.messages.positions import Runs
from bridge.messages.stream_names import planned_stream

#: Version of the line's format.
VERSION: Final = 1
#: The first bytes of every line, of any version.
START: Final = b'{"v":'

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


def line(
    *,
    side: str,
    node: str,
    node_id: str,
    bridge: str | None,
    lane: int,
    stream: str,
    address: str,
    target: str,
    store: str,
    from_: int,
    upto: int,
    runs: Runs,
    refused: Sequence[int],
    ids: Sequence[tuple[int | None, bytes]],
    events: tuple[int, int],
    committed: int,
    duplicates: int,
    recovered: bool,
    clock_offset: int | None = None,
    known: Runs = (),
    unchecked: bool = False,
    session: Session | None = None,
    number: int = 0,
    verdict: str | None = None,
) -> bytes:
    """One line as the contract writes it, without the newline.

    A line of a replay plan's messages names the original stream, ``replays``; its positions are that
    stream's.

    Args:
        side: ``sent`` or ``received``.
        node: name of the writing node.
        node_id: its UUID.
        bridge: None for clients' messages.
        lane: of the bridge; 0 where it has one.
        stream: identity of the stream; for clients' messages the address's own.
        address: name at the side that writes.
        target: name of the target.
        store: its store identity.
        from_: first position covered.
        upto: one beyond the last position covered.
        runs: positions that carried a message.
        refused: positions that were refused for good.
        ids: producers' IDs only, each with its position; None where the first copy's place is not known.
        events: when the first and the last message were stored at the source, ms since the epoch.
        committed: when the target committed, ms since the epoch by its clock; 0 where it is not known.
        duplicates: messages of the batch that the target knew already.
        recovered: True where the target's word at an opening reports what no line reports.
        clock_offset: on sent lines, the target's clock less this node's in ms, where it was measured; else
            None, and the key is not written.
        known: positions in `runs` that were left out because the target knew them; the key is not written
            where there are none.
        unchecked: True where the target did not look up `ids`; else the key is not written.
        session: of the journal that writes, or None: another store, and the keys are not written.
        number: of the line in that journal; with `session`.
        verdict: ``duplicate`` for a transaction that was rejected as a whole; else None, and the key is not
            written.
    """
    fields: dict[str, Any] = {
        "v": VERSION,
        "side": side,
        "node": node,
        "node-id": node_id,
        "bridge": bridge,
        "lane": lane,
        "stream": stream,
        "address": address,
        "target": target,
        "store": store,
        "from": from_,
        "upto": upto,
        "runs": runs,
        "refused": refused,
        "count": run_arithmetic.count(runs),
        "ids": [(position, _text(value)) for position, value in ids],
        "events": events,
        "committed": committed,
        "duplicates": duplicates,
        "recovered": recovered,
    }
    if clock_offset is not None:
        fields["clock-offset"] = clock_offset
    if known:
        fields["known"] = known
    if unchecked:
        fields["unchecked"] = True
    if session is not None:
        fields["session"] = session.id
        fields["number"] = number
        if session.after is not None:
            fields["after"] = session.after
    if verdict is not None:
        fields["verdict"] = verdict
    if (replayed := planned_stream(stream)) is not None:
        fields["replays"] = replayed
    return _encode(fields)


def _text(duplicate_id: bytes) -> str | dict[str, str]:
    try:
        return duplicate_id.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(duplicate_id).decode()}
