"""The delivery-log lines of one commit group, stored in the same transaction as their messages (design
section 7).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bridge import delivery_log
from bridge.delivery_log import Session
from bridge.journal.rules.commands import BeginCommand, DeliverCommand, SettleCommand
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block
from bridge.messages.positions import Runs


@dataclass(slots=True)
class Logbook:
    """Collects lines; `enabled` False collects nothing."""

    enabled: bool
    node: str
    node_id: str
    store: str
    now_ms: int
    session: Session
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
            self._add(
                side="received", bridge=command.bridge, address=command.address, target=self.node,
                store=self.store, batch=taken, committed=self.now_ms, duplicates=len(rejected),
                rejected=rejected, unchecked=not command.check_ids,
            )  # fmt: skip

    def replayed(self, command: DeliverCommand, batch: Batch) -> None:
        """Add the line of a bridge's batch that was covered before."""
        if self.enabled and batch.count:
            self._add(
                side="received", bridge=command.bridge, address=command.address, target=self.node,
                store=self.store, batch=batch, committed=self.now_ms, duplicates=batch.count,
                verdict="duplicate",
            )  # fmt: skip

    def sent(self, command: SettleCommand) -> None:
        """Add the line of a batch that the target confirmed."""
        if self.enabled:
            self._add(
                side="sent", bridge=command.bridge, address=command.address, target=command.target,
                store=command.store, batch=command.batch, committed=command.committed,
                duplicates=command.duplicates, recovered=command.recovered, clock_offset=command.clock_offset,
            )  # fmt: skip

    def passed_over(self, command: BeginCommand, from_: int) -> None:
        """Add the line of positions that the operator has decided not to deliver: covered and empty."""
        if self.enabled:
            self._add(
                side="sent", bridge=command.bridge, address=command.address, target=command.target,
                store=command.store, batch=Batch(command.stream, from_, command.at), committed=self.now_ms,
                duplicates=0,
            )  # fmt: skip

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
        self.lines.append(
            delivery_log.line(
                side="received", node=self.node, node_id=self.node_id, bridge=None, lane=0, stream=stream,
                address=address, target=self.node, store=self.store, from_=from_, upto=upto, runs=runs,
                refused=(), ids=ids, events=(self.now_ms, self.now_ms), committed=self.now_ms,
                duplicates=0, recovered=False, verdict=None, session=self.session, number=self._number,
            )
        )  # fmt: skip

    def close(self, streams: dict[str, str]) -> None:
        """Write the lines of known IDs; `streams` has the stream of each of `addresses`."""
        for address, ids in self.repeated.items():
            self._add_known(address, streams[address], ids, len(ids))
        for address, own_id, messages in self.transactions:
            self._add_known(address, streams[address], [own_id], messages)

    def _add_known(self, address: str, stream: str, ids: list[bytes], messages: int) -> None:
        self.lines.append(
            delivery_log.line(
                side="received", node=self.node, node_id=self.node_id, bridge=None, lane=0, stream=stream,
                address=address, target=self.node, store=self.store, from_=0, upto=0, runs=(), refused=(),
                ids=[(None, value) for value in ids], events=(self.now_ms, self.now_ms),
                committed=self.now_ms, duplicates=messages, recovered=False, verdict="duplicate",
                session=self.session, number=self._number,
            )
        )  # fmt: skip

    @property
    def _number(self) -> int:
        """The number of the line that is added next: its row's in the outbox."""
        return self.written + len(self.lines) + 1

    def _add(  # noqa: PLR0913 - a line's keys, each by its name
        self, *, side: str, bridge: str, address: str, target: str, store: str, batch: Batch,
        committed: int, duplicates: int, recovered: bool = False, clock_offset: int | None = None,
        verdict: str | None = None, rejected: Collection[int] = (), unchecked: bool = False,
    ) -> None:  # fmt: skip
        ids: list[tuple[int | None, bytes]] = []
        known: Runs = ()
        if batch.block is not None and (rejected or batch.block.ids):
            kept = [(index, value) for index, value in batch.block.ids if index not in rejected]
            places = run_arithmetic.at(batch.runs, (index for index, _ in kept))
            ids = [(place, value) for place, (_, value) in zip(places, kept, strict=True)]
            known = run_arithmetic.join((at, at) for at in run_arithmetic.at(batch.runs, sorted(rejected)))
        self.lines.append(
            delivery_log.line(
                side=side, node=self.node, node_id=self.node_id, bridge=bridge, lane=0, stream=batch.stream,
                address=address, target=target, store=store, from_=batch.from_, upto=batch.upto,
                runs=batch.runs, refused=batch.refused, ids=ids, events=batch.events, committed=committed,
                duplicates=duplicates, recovered=recovered, clock_offset=clock_offset, known=known,
                unchecked=unchecked and bool(ids), session=self.session,
                number=self._number, verdict=verdict,
            )
        )  # fmt: skip
