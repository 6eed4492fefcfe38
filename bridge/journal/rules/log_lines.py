"""The delivery-log lines of one commit group, stored in the same transaction as their messages (design
section 7).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from bridge.delivery_log import MISSING, Line, LineWriter
from bridge.journal.rules.commands import BeginCommand, DeliverCommand, LogMissingCommand, SettleCommand
from bridge.journal.values.queue_cursor import Interval
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block
from bridge.messages.positions import Runs


@dataclass(slots=True)
class Logbook:
    """Collects lines; `enabled` False collects nothing."""

    enabled: bool
    #: The writer of the lines of clients' messages; those of bridges differ in their bridge and target.
    writer: LineWriter
    now_ms: int
    #: Number of lines that the journal has written before these, ever.
    written: int
    lines: list[bytes] = field(default_factory=list)
    #: IDs of messages that were known, by address: one line each, for the whole group.
    repeated: dict[str, list[bytes]] = field(default_factory=dict)
    #: Transactions whose own ID was known: address, ID, messages for that address. Each gets a line, so that
    #: the line says how many messages the one ID stands for.
    transactions: list[tuple[str, bytes, int]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is no line to store."""
        return not (self.lines or self.repeated or self.transactions)

    @property
    def addresses(self) -> set[str]:
        """The addresses whose streams `close` needs."""
        return {*self.repeated, *(address for address, _, _ in self.transactions)}

    def duplicate(self, address: str, ids: list[bytes]) -> None:
        """Add IDs of messages that were known at an address."""
        if self.enabled:
            self.repeated.setdefault(address, []).extend(ids)

    def duplicate_transaction(self, address: str, own_id: bytes, messages: int) -> None:
        """Add `messages` for an address, in a transaction whose own ID was known."""
        if self.enabled:
            self.transactions.append((address, own_id, messages))

    def received(self, command: DeliverCommand, taken: Batch, rejected: Collection[int]) -> None:
        """Add the line of a bridge's batch, as far as it was not covered before.

        `rejected`: indices of messages whose producer's ID was known. The line has all positions, and the IDs
        that were accepted; those that were known are in a line of their own (`duplicate`).
        """
        if self.enabled:
            line = Line.of_batch(
                "received", self._writer(command.bridge), command.address, taken,
                committed=self.now_ms, duplicates=len(rejected), rejected=rejected,
            )  # fmt: skip
            line.unchecked = not command.check_ids and bool(line.ids)
            self._add(line)

    def replayed(self, command: DeliverCommand, batch: Batch) -> None:
        """Add the line of a bridge's batch that was covered before."""
        if self.enabled and batch.count:
            line = Line.of_batch(
                "received", self._writer(command.bridge), command.address, batch,
                committed=self.now_ms, duplicates=batch.count,
            )  # fmt: skip
            line.verdict = "duplicate"
            self._add(line)

    def sent(self, command: SettleCommand, lost: Sequence[Interval] = ()) -> None:
        """Add the line of a batch that the target confirmed.

        `lost`: where this node had messages that could not be read. They are in this line and not in the
        target's: `core-bridge reconcile` reports them as lost.
        """
        if self.enabled and command.logged:
            line = Line.of_batch(
                "sent", self._sender(command), command.address, command.batch,
                committed=command.committed, duplicates=command.duplicates,
            )  # fmt: skip
            line.recovered, line.clock_offset = command.recovered, command.clock_offset
            if lost:
                line.runs = run_arithmetic.join(
                    sorted([*line.runs, *((low, upto - 1) for low, upto in lost)])
                )
            self._add(line)

    def passed_over(self, command: BeginCommand, from_: int) -> None:
        """Add the line of positions that the operator has decided not to deliver: covered and empty."""
        if self.enabled:
            batch = Batch(command.stream, from_, command.at)
            self._add(
                Line.of_batch(
                    "sent", self._sender(command), command.address, batch, committed=self.now_ms, duplicates=0
                )
            )

    def missing(self, command: LogMissingCommand) -> None:
        """Add a line for each run of positions that the target had confirmed and does not have any more."""
        for first, last in command.runs if self.enabled else ():
            batch = Batch(command.stream, first, last + 1)
            line = Line.of_batch(
                "sent", self._sender(command), command.address, batch, committed=0, duplicates=0
            )
            line.verdict = MISSING
            self._add(line)

    def client_sends(
        self, address: str, stream: str, from_: int, upto: int, blocks: Sequence[tuple[int, Block]]
    ) -> None:
        """Add the line of the messages that clients sent to an address with this group: (first position,
        block) each.
        """
        if not self.enabled:
            return
        runs: Runs = run_arithmetic.join((first, first + block.count - 1) for first, block in blocks)
        ids = [(first + index, value) for first, block in blocks for index, value in block.ids]
        self._add(
            Line(
                side="received", writer=self.writer, stream=stream, address=address, from_=from_, upto=upto,
                runs=runs, ids=ids, events=(self.now_ms, self.now_ms), committed=self.now_ms, duplicates=0,
            )
        )  # fmt: skip

    def close(self, streams: dict[str, str]) -> None:
        """Write the lines of known IDs; `streams` has the stream of each of `addresses`."""
        for address, ids in self.repeated.items():
            self._add_known(address, streams[address], ids, len(ids))
        for address, own_id, messages in self.transactions:
            self._add_known(address, streams[address], [own_id], messages)

    def _add_known(self, address: str, stream: str, ids: list[bytes], messages: int) -> None:
        self._add(
            Line(
                side="received", writer=self.writer, stream=stream, address=address, from_=0, upto=0,
                ids=[(None, value) for value in ids], events=(self.now_ms, self.now_ms),
                committed=self.now_ms, duplicates=messages, verdict="duplicate",
            )
        )  # fmt: skip

    def _add(self, line: Line) -> None:
        """Add a line under the number of its row in the outbox."""
        line.number = self.written + len(self.lines) + 1
        self.lines.append(line.encode())

    def _writer(self, bridge: str) -> LineWriter:
        """The writer of received lines of a bridge."""
        return msgspec.structs.replace(self.writer, bridge=bridge)

    def _sender(self, command: SettleCommand | BeginCommand | LogMissingCommand) -> LineWriter:
        """The writer of sent lines of a bridge."""
        return msgspec.structs.replace(
            self.writer, bridge=command.bridge, target=command.target, store=command.store
        )
