"""The participants of a transaction, and the decision how to end one that Kafka left open. Pure.

The first journal record of every transaction carries a `Mark` in a header: the number of journal records, and
the offsets of the data. It is written when every data batch has been acknowledged, so a reader that finds all
of the journal's records knows that all of the data is stored too (`bridge.kafka.recovery.hanging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

from bridge.errors import TargetRefused, listed
from bridge.kafka.records.record_batches import Offsets

#: Name of the header.
MARK_HEADER: Final = "transaction"
#: The operator's action where the bridge cannot decide.
REMEDY: Final = (
    "find out with kafka-transactions.sh (find-hanging, describe-producers), and end it with its abort"
)


class Participant(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A partition with data of the transaction."""

    topic: str
    partition: int
    #: Offset of the transaction's last record there; -1: the broker did not say.
    last: int

    @property
    def tp(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} up to offset {self.last}"


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """The description of a transaction in its first journal record."""

    #: Number of journal records.
    records: int
    participants: tuple[Participant, ...]


class Outcome(Enum):
    """The outcome of a transaction in one partition."""

    #: The transaction has not ended: there is no marker.
    HANGING = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    #: It has ended, and the record that would show the outcome is gone.
    UNKNOWN = "ended, it is not known how"
    #: The topic does not exist any more.
    GONE = "gone"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Mark).decode


def mark(records: int, offsets: Offsets) -> bytes:
    """The header's value, for a transaction with so many journal records and this data."""
    ends: dict[tuple[str, int], list[int]] = {}
    for batch, base in offsets.items():
        last = -1 if base < 0 else base + batch.builder.record_count() - 1
        ends.setdefault((batch.topic, batch.partition), []).append(last)
    participants = tuple(
        Participant(topic, partition, max(lasts) if min(lasts) >= 0 else -1)
        for (topic, partition), lasts in sorted(ends.items())
    )
    return _encode(Mark(records, participants))


def marked(value: bytes) -> Mark:
    """The mark in a header's value. Raises: TargetRefused: no bridge can have written it."""
    try:
        return _decode(value)
    except msgspec.DecodeError as error:
        raise TargetRefused(
            f"a journal record says something unreadable of its transaction: {error}"
        ) from error


def together(marks: Iterable[Mark]) -> Mark:
    """Merge the marks of several transactions that were left open one after the other into one."""
    ends: dict[tuple[str, int], int] = {}
    records = 0
    for each in marks:
        records += each.records
        for one in each.participants:
            # The latest counts, known or not: what comes later stands behind.
            ends[one.topic, one.partition] = one.last
    return Mark(records, tuple(Participant(*tp, last) for tp, last in sorted(ends.items())))


def is_to_commit(transaction: str, found: Mapping[Participant, Outcome], *, complete: bool) -> bool:
    """Whether the open transaction has to be committed, else aborted; never leaves it partly committed.

    Args:
        transaction: what errors call it.
        found: the outcome in each data partition; the journal partition is open and not among them.
        complete: whether all journal records were written. If not, no commit was ever asked for.

    Raises:
        TargetRefused: an operator has to decide; says what was found.
    """
    outcomes = set(found.values())
    committed, aborted = Outcome.COMMITTED in outcomes, Outcome.ABORTED in outcomes
    if committed and (aborted or not complete):
        raise refused(transaction, f"it is partly committed, and can be neither now: {_listed(found)}")
    if committed or aborted:
        return committed
    if not complete:
        return False
    if Outcome.UNKNOWN in outcomes:
        raise refused(transaction, f"whether it was committed cannot be told: {_listed(found)}")
    # A receipt may have been sent, and all of the data is stored.
    return True


def is_named(transaction: str, tp: tuple[str, int], last: int | None, open_from: int) -> bool:
    """Whether what is open in a data partition belongs to the last committed transaction.

    Args:
        transaction: what errors call it.
        tp: topic and partition.
        last: the offset that the committed transaction's mark names there; -1: it names none; None: it did
            not take part there.
        open_from: first offset that is open.

    Raises:
        TargetRefused: an operator has to decide; says what was found.
    """
    if last is not None and last < 0:
        topic, partition = tp
        raise refused(
            transaction,
            f"whether what {topic}/{partition} holds of it from offset {open_from} on was committed cannot"
            " be told: the broker did not say where it stands",
        )
    return last is not None and last >= open_from


def refused(transaction: str, why: str) -> TargetRefused:
    """A hanging transaction that the bridge cannot end."""
    return TargetRefused(
        f"the brokers have left {transaction} open after its end, and {why}; {REMEDY}", key="journal-topic"
    )


def _listed(found: Mapping[Participant, Outcome]) -> str:
    return listed(f"{one} {outcome.value}" for one, outcome in sorted(found.items(), key=lambda it: it[0]))
