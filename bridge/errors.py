"""Every error that reaches a user, each with its code, and the numbers on both sides of a broken rule.

Log or raise, never both: the code that turns an error into an answer, an exit code or a state logs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

#: Most names that `listed` writes out.
MOST_NAMED: Final = 3


@dataclass(eq=False)
class BridgeError(Exception):
    """The base of all errors. `code` is the problem's title in HTTP answers; `status` the answer's status."""

    detail: str
    #: The key, header or place the rule is about.
    key: str | None = None
    #: The limit, and what was found instead.
    limit: int | str | None = None
    found: int | str | None = None

    code = "FAILED"
    status = 500

    def __str__(self) -> str:
        return self.detail


class Malformed(BridgeError):
    """The input cannot be read, or breaks a rule of its form."""

    code, status = "MALFORMED", 400


@dataclass(eq=False)
class FilterRefused(BridgeError):
    """A filter's condition that is none, or is above a limit."""

    #: Where in the condition, both from 1; 0: it is about the whole.
    line: int = 0
    column: int = 0

    code, status = "FILTER_REFUSED", 400


class TransformerRefused(BridgeError):
    """A transformer that cannot be imported here, called, or made with its properties."""

    code = "TRANSFORMER_REFUSED"


class InvalidAddress(BridgeError):
    """A name that no address or queue can have."""

    code, status = "INVALID_ADDRESS", 400


class InvalidDuplicateId(BridgeError):
    """The ID is empty or too long, or there are two different ones."""

    code, status = "INVALID_DUPLICATE_ID", 400


class Forbidden(BridgeError):
    """The caller is known, and does not have the right."""

    code, status = "FORBIDDEN", 403


class AddressNotFound(BridgeError):
    """There is no such address, and it is not made on demand."""

    code, status = "ADDRESS_NOT_FOUND", 404


class QueueNotFound(BridgeError):
    """There is no such queue on the address."""

    code, status = "QUEUE_NOT_FOUND", 404


class NotFound(BridgeError):
    """There is nothing at that place."""

    code, status = "NOT_FOUND", 404


@dataclass(eq=False)
class DuplicateIdRejected(BridgeError):
    """A transaction carries IDs that are known, or an ID twice. Nothing of it was stored."""

    #: (index in the transaction, address, ID).
    duplicates: tuple[tuple[int, str, bytes], ...] = ()

    code, status = "DUPLICATE_ID_REJECTED", 409


class StaleLease(BridgeError):
    """The lease has ended; its messages are, or will be, leased to another reader."""

    code, status = "STALE_LEASE", 409


class Conflict(BridgeError):
    """The present state forbids the operation."""

    code, status = "CONFLICT", 409


class MessageTooLarge(BridgeError):
    """The message is above `max-message-size`, or above the whole limit of its address."""

    code, status = "MESSAGE_TOO_LARGE", 413


class AddressFull(BridgeError):
    """The address holds `max-size-bytes` or more."""

    code, status = "ADDRESS_FULL", 503


class DiskFull(BridgeError):
    """The journal cannot grow. Nothing was stored; it resumes by itself when there is room."""

    code, status = "DISK_FULL", 503


class TooBusy(BridgeError):
    """A named limit of work in progress is reached."""

    code, status = "TOO_BUSY", 503


class BodyNotKept(BridgeError):
    """The beginning of a large body, with which a sender wants to go on, is not here any more."""

    code, status = "BODY_NOT_KEPT", 409


@dataclass(eq=False)
class Stopping(BridgeError):
    """The node is stopping, or hands its messages over to another one."""

    #: URL of the node that takes them instead; empty: there is none. Not part of the text.
    location: str = ""

    code, status = "STOPPING", 503


class JournalUnavailable(BridgeError):
    """The journal could not say whether the work was stored: ask again, with the same IDs."""

    code, status = "JOURNAL_UNAVAILABLE", 503


class JournalFailed(BridgeError):
    """The journal cannot be opened: damaged, locked, read-only, or of another version."""

    code = "JOURNAL_FAILED"


class JournalDamaged(JournalFailed):
    """The journal's file is not as it was stored: a person has to act."""

    code, status = "JOURNAL_DAMAGED", 503


class DeliveryLogFailed(BridgeError):
    """The delivery log cannot be opened: its directory cannot be used, or another process writes there."""

    code = "DELIVERY_LOG_FAILED"


class SourceGap(BridgeError):
    """The source no longer has (or never had) the position it was asked to resume from."""

    code = "SOURCE_GAP"


class SourceUnavailable(BridgeError):
    """The source cannot be reached, or has changed under the bridge: after a new opening it continues."""

    code = "SOURCE_UNAVAILABLE"


class SourceRefused(BridgeError):
    """The source will not serve this bridge, and asking again does not help."""

    code = "SOURCE_REFUSED"


class TargetUnavailable(BridgeError):
    """The target cannot be reached, or was lost: whether it stored the last batches is unknown."""

    code, status = "TARGET_UNAVAILABLE", 503


class TargetRefused(BridgeError):
    """The target will not serve this bridge, and asking again does not help."""

    code = "TARGET_REFUSED"


@dataclass(eq=False)
class TargetBusy(TargetUnavailable):
    """The target answers, and asks to come again later."""

    #: Shortest time until then, ms.
    retry_after_ms: int = 0


class TargetStopping(TargetUnavailable):
    """The target's node is going down, or hands its messages over to another one."""


class OutOfSequence(TargetUnavailable):
    """A batch began beyond the target's next: nothing was stored, the link closes (design rule 1)."""

    code = "OUT_OF_SEQUENCE"


class Fenced(TargetUnavailable):
    """A newer link has opened this stream."""

    code = "FENCED"


def described(error: BaseException | None) -> str:
    """The text of an error in logs and states: code and detail, or class and text of a foreign error."""
    if isinstance(error, BridgeError):
        return f"{error.code}: {error.detail}"
    return type(error).__name__ if error is None else f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an error. An error of foreign code, such as a transformer's, may fail to give one."""
    try:
        return str(error)
    except BaseException as another:  # noqa: BLE001 - whatever its code raises
        return f"its text cannot be shown ({type(another).__name__})"


def listed(names: Iterable[str]) -> str:
    """Names in a text for people: the first `MOST_NAMED`, and how many more there are."""
    rest = iter(names)
    first = ", ".join(islice(rest, MOST_NAMED))
    more = sum(1 for _ in rest)
    return f"{first} and {more:,} more" if more else first
