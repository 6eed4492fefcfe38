"""Messages that came to each address since the node started, counted as they are answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from bridge.errors import DuplicateIdRejected
from bridge.journal.rules.commands import CommitCommand, DeliverCommand, WriteCommand
from bridge.journal.values.store import Committed
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict

_log: Final = structlog.get_logger(__name__)


@dataclass(slots=True)
class AddressCounts:
    """Messages of one address."""

    #: Stored, by clients and over bridges.
    stored: int = 0
    #: Sent again by clients, known by their producers' IDs.
    repeated: int = 0
    #: Delivered again by a bridge.
    replayed: int = 0
    #: Stored although no queue took them.
    unrouted: int = 0


@dataclass(slots=True)
class Counts:
    """Every address's counts."""

    of_address: defaultdict[str, AddressCounts] = field(default_factory=lambda: defaultdict(AddressCounts))
    #: By address and queue, messages for which the queue's filter could not be evaluated.
    not_evaluated: dict[tuple[str, str], int] = field(default_factory=dict)
    #: The queues of which it was logged, with the filter that they have.
    _logged: set[tuple[str, str]] = field(default_factory=set)
    #: Called with the number of messages rejected as duplicates, and the bridge (None: clients) that brought
    #: them.
    on_duplicates: Callable[[str | None, int], None] = lambda _bridge, _count: None

    def forget(self, address: str) -> None:
        """Drop the counts of an address that was deleted."""
        self.of_address.pop(address, None)
        for _, queue in [key for key in self.not_evaluated if key[0] == address]:
            self.forget_queue(address, queue)

    def forget_queue(self, address: str, queue: str) -> None:
        """Drop the counts of a queue that was deleted."""
        self.not_evaluated.pop((address, queue), None)
        self._logged.discard((address, queue))

    def filter_changed(self, address: str, queue: str, user: str, before: str, after: str) -> None:
        """Log it; the next message that cannot be evaluated is logged again."""
        self._logged.discard((address, queue))
        of = {"address": address, "queue": queue, "user": user}
        _log.info("queue-filter-changed", **of, filter=after, before=before)

    def count_not_evaluated(self, counted: Mapping[tuple[str, str], int]) -> None:
        """Count messages for which a queue's filter could not be evaluated, by address and queue. The first
        of a queue are logged.
        """
        for (address, queue), count in counted.items():
            key = address, queue
            self.not_evaluated[key] = self.not_evaluated.get(key, 0) + count
            if key not in self._logged:
                self._logged.add(key)
                reason = "taken for no match; more are counted, not logged"
                _log.warning(
                    "queue-filter-not-evaluated", address=address, queue=queue, count=count, reason=reason
                )

    def duplicates(self) -> dict[str, int]:
        """By address, messages that were not stored again, whichever way they came."""
        return {name: of.repeated + of.replayed for name, of in list(self.of_address.items())}

    def unrouted(self, address: str) -> int:
        """Messages of an address that no queue took."""
        counts = self.of_address.get(address)
        return 0 if counts is None else counts.unrouted

    def count_unrouted(self, unrouted: Mapping[str, int]) -> None:
        """Count messages that no queue took, by address."""
        for address, count in unrouted.items():
            self.of_address[address].unrouted += count

    def count(self, command: WriteCommand) -> None:
        """Count a command that is about to be answered."""
        if isinstance(command, CommitCommand):
            self._count_commit(command)
        elif isinstance(command, DeliverCommand) and isinstance(command.result, Receipt):
            self._count_delivery(command, command.result)

    def _count_delivery(self, command: DeliverCommand, receipt: Receipt) -> None:
        if receipt.verdict not in (Verdict.STORED, Verdict.DUPLICATE):
            return
        counts = self.of_address[command.address]
        counts.repeated += command.rejected
        counts.replayed += receipt.duplicates - command.rejected
        if receipt.duplicates:
            self.on_duplicates(command.bridge, receipt.duplicates)
        if receipt.verdict is Verdict.STORED:
            counts.stored += command.batch.count - receipt.duplicates

    def _count_commit(self, command: CommitCommand) -> None:
        committed: Committed | None = command.result
        if committed is None:
            if isinstance(command.error, DuplicateIdRejected):
                self._count_repeated([address for _, address, _ in command.error.duplicates])
            return
        for address, (first, last) in committed.positions.items():
            self.of_address[address].stored += last - first + 1
        for address, count in committed.elsewhere.items():
            self.of_address[address].stored += count
        sent = command.transaction.sent
        if not committed.stored:
            self._count_repeated([one.address for one in sent])
        elif committed.skipped:
            self._count_repeated([sent[index].address for index in committed.skipped])

    def _count_repeated(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            self.of_address[address].repeated += 1
        if addresses:
            self.on_duplicates(None, len(addresses))
