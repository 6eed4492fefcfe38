"""Compares the messages that arrived at the hub with the rows of the file, row by row and in order. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from bridge.demo.rows import Row


@dataclass(frozen=True, slots=True)
class Proof:
    """The demo's result; field by field the keys of contract.md's proof line."""

    sent: int
    repeated: int
    duplicates: int
    arrived: int
    lost: int
    doubled: int
    out_of_order: int
    kills: int
    cuts: int
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every row arrived once and in order, and every repetition was recognised."""
        return (
            not (self.lost or self.doubled or self.out_of_order)
            and self.arrived == self.sent
            and self.duplicates == self.repeated
        )

    def values(self) -> dict[str, int | float]:
        """The values by their keys, in the contract's order."""
        seconds = max(round(self.seconds, 1), 0.1)
        return {
            "sent": self.sent,
            "repeated": self.repeated,
            "duplicates": self.duplicates,
            "arrived": self.arrived,
            "lost": self.lost,
            "doubled": self.doubled,
            "out-of-order": self.out_of_order,
            "kills": self.kills,
            "cuts": self.cuts,
            "seconds": seconds,
            "messages/s": int(self.sent / seconds),
        }

    def line(self, form: str) -> str:
        """The last line of stdout."""
        if form == "json":
            return json.dumps(self.values())
        return " ".join(f"{name} {value}" for name, value in self.values().items())


class Comparison:
    """Takes messages in their order at the hub."""

    def __init__(
        self,
        rows: Sequence[Row],
        sender_of: Callable[[int], Hashable],
        edge_positions: Sequence[int | None],
    ) -> None:
        """`sender_of`: row index to the client that sent it. `edge_positions`: None: the answer was lost."""
        self._rows = rows
        self._sender_of = sender_of
        self._edge_positions = edge_positions
        self._copies = [0] * len(rows)
        self._last_of: dict[Hashable, int] = {}
        self._last_position = -1
        #: Messages taken, and those among them that are no row of the file.
        self.arrived = 0
        self.foreign = 0
        #: Rows that came after a later one of the same client, or of the edge's order.
        self.out_of_order = 0

    @property
    def lost(self) -> int:
        """Number of rows of which no copy came."""
        return self._copies.count(0)

    @property
    def doubled(self) -> int:
        """Copies beyond the first, and messages that no client sent."""
        return sum(copies - 1 for copies in self._copies if copies > 1) + self.foreign

    def take(self, key: bytes | None, body: bytes | None) -> None:
        """Take the next message: its key is the row's number, and its body must be that row's."""
        self.arrived += 1
        index = self._index(key)
        if index is None or self._rows[index].body != body:
            self.foreign += 1
            return
        self._copies[index] += 1
        if self._copies[index] == 1 and not self._follows(index):
            self.out_of_order += 1

    def missing(self, most: int) -> list[int]:
        """The first `most` rows of which no copy came."""
        return [index for index, copies in enumerate(self._copies) if not copies][:most]

    def _index(self, key: bytes | None) -> int | None:
        if key is None or not key.isdigit() or int(key) >= len(self._rows):
            return None
        return int(key)

    def _follows(self, index: int) -> bool:
        sender, position = self._sender_of(index), self._edge_positions[index]
        in_file_order = index > self._last_of.get(sender, -1)
        in_edge_order = position is None or position > self._last_position
        self._last_of[sender] = max(index, self._last_of.get(sender, -1))
        if position is not None:
            self._last_position = max(position, self._last_position)
        return in_file_order and in_edge_order
