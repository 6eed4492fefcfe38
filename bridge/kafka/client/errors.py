"""The meaning of Kafka's errors to a bridge: try again, or name the right or setting to change.

The bridge decides whether an error passes, and not aiokafka's `retriable`: that knows neither the codes that
came after 79 nor what a bridge can wait for. `bridge.kafka.client.error_codes` has the table.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from aiokafka import TopicPartition
from aiokafka.errors import (
    BrokerResponseError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    UnknownError,
    UnrecognizedBrokerVersion,
    UnsupportedCodecError,
)

from bridge.errors import (
    BridgeError,
    Fenced,
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
    listed,
)
from bridge.kafka.client import tls_errors
from bridge.kafka.client.error_codes import (
    ACL_OPERATIONS,
    AUTHORIZATION,
    FENCED,
    FOR_GOOD,
    HINTS,
    UNKNOWN_CODE,
    teach_aiokafka,
)
from bridge.kafka.client.line import LineStandsStill

Side = Literal["source", "target"]

#: Causes looked at below an error; aiokafka nests two.
MAX_CAUSES: Final = 8

_REFUSED: Final = {"source": SourceRefused, "target": TargetRefused}
_UNAVAILABLE: Final = {"source": SourceUnavailable, "target": TargetUnavailable}
#: Errors that no second attempt changes, besides Kafka's codes: the library or the broker cannot do it, or
#: the client was made with a value that it does not take.
_FOR_GOOD_TYPES: Final = (
    IncompatibleBrokerVersion,
    UnrecognizedBrokerVersion,
    UnsupportedCodecError,
    ValueError,
    TypeError,
)

#: Operations that need the same right on every resource involved: a commit writes to its topics.
_CARRIED_ON: Final = frozenset({"Read", "Write"})

teach_aiokafka()


class Unanswered(KafkaError):
    """A broker took the connection and closed it without an answer: its reason can only be guessed."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.hint = hint


class TokenUnusable(KafkaError):
    """The token file holds nothing that could be a token. Names the file, never its content."""


class TokenRefused(KafkaError):
    """The broker did not take the token. The next may be valid: the file is read again each time."""


class NoBroker(KafkaConnectionError):
    """No broker took the connection; `reasons` holds one error for each broker that was asked."""

    def __init__(self, reasons: Collection[tuple[str, BaseException]]) -> None:
        super().__init__("; ".join(f"{broker}: {said(error)}" for broker, error in reasons))
        self.reasons = tuple(error for _, error in reasons)


def explained(
    error: BaseException, *, side: Side, connector: str, operation: str, resource: str
) -> BridgeError:
    """`error` as the bridge's own: …Unavailable where it passes by itself, …Refused where it does not.

    The text says what was asked for, what Kafka said, and which right or setting mends it. An error that
    is the bridge's own already stays as it is. A target that another producer has taken is `Fenced`.

    Args:
        error: from aiokafka, the network or the loop (a timeout).
        side: which end asked.
        connector: the connector's name in the settings.
        operation: as Kafka's ACLs call it: Read, Write, Describe, Create, Alter, IdempotentWrite...
        resource: what was asked for: ``topic orders``, ``group core-bridge.x``, ``transactional id ...``.
    """
    if isinstance(error, BridgeError):
        return error
    cause = _decisive(error)
    if side == "target" and is_fencing(cause):
        kind: type[BridgeError] = Fenced
    else:
        kind = _REFUSED[side] if is_for_good(cause) else _UNAVAILABLE[side]
    hint = _hint(cause, operation, resource)
    text = f"connector {connector}: {operation} {resource}: {said(cause)}{f'; {hint}' if hint else ''}"
    return kind(text, key=resource)


@contextmanager
def explaining(connector: str, operation: str, resource: str, *, side: Side = "source") -> Iterator[None]:
    """Raise errors of Kafka, the network or the loop as `explained` ones; the bridge's own pass unchanged.

    Raises: as `explained` says.
    """
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise explained(
            error, side=side, connector=connector, operation=operation, resource=resource
        ) from error


def is_for_good(error: BaseException) -> bool:
    """Whether asking again does not help: a right or a setting must change first."""
    if isinstance(error, NoBroker):  # one broker that may come back is enough
        return all(is_for_good(reason) for reason in error.reasons)
    if isinstance(error, ssl.SSLError):
        return tls_errors.is_for_good(error)
    if isinstance(error, OSError | UnicodeError):  # UnicodeError: a record's content, not a setting
        return False
    return code_of(error) in FOR_GOOD or isinstance(error, _FOR_GOOD_TYPES)


def is_fencing(error: BaseException) -> bool:
    """Whether another producer has taken the transactional id, or the broker has timed it out."""
    return isinstance(error, ProducerFenced) or code_of(error) in FENCED


def code_of(error: BaseException) -> int | None:
    """Kafka's error code; None where the error has none, or aiokafka has lost it."""
    if isinstance(error, BrokerResponseError) and not isinstance(error, UnknownError):
        return int(error.errno)
    return None


def said(error: BaseException) -> str:
    """The message of Kafka, the network or the library, in one line."""
    stands_still = isinstance(error.__cause__, LineStandsStill)
    about = str(error.__cause__) if stands_still else ", ".join(filter(None, map(_named, error.args)))
    if isinstance(error, NoBroker | Unanswered | TokenUnusable | TokenRefused):
        return about
    if stands_still or isinstance(error, TimeoutError | KafkaTimeoutError):
        return f"timed out{f': {about}' if about else ''}"
    if isinstance(error, UnknownError):
        return f"{UNKNOWN_CODE}{f': {about}' if about else ''}"
    if isinstance(error, BrokerResponseError):
        return f"{error.message} ({error.errno}){f': {about}' if about else ''}"
    if isinstance(error, OSError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}{f': {about}' if about else ''}"


def _decisive(error: BaseException) -> BaseException:
    """The error itself, or the cause below it that says what is wrong for good: aiokafka wraps some."""
    chain = list(_chain(error))
    return next((item for item in chain if is_for_good(item) or is_fencing(item)), _most_specific(chain))


def _most_specific(chain: list[BaseException]) -> BaseException:
    """The first error with a type of its own; plain KafkaErrors only wrap another."""
    return next((item for item in chain if type(item) is not KafkaError), chain[0])


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if link is None:
            return
        yield link
        link = link.__cause__


def _hint(error: BaseException, operation: str, resource: str) -> str:
    if isinstance(error, NoBroker):
        hints = (_hint(reason, operation, resource) for reason in error.reasons)
        return "; ".join(dict.fromkeys(filter(None, hints)))
    if isinstance(error, Unanswered):
        return error.hint
    if isinstance(error, ssl.SSLError):
        return tls_errors.hint(error)
    if isinstance(error, UnsupportedCodecError):
        return "see compression-type"
    code = code_of(error)
    if code in AUTHORIZATION:
        return _missing_right(error, operation, resource, AUTHORIZATION[code])
    return HINTS.get(code, "") if code is not None else ""


def _missing_right(error: BaseException, operation: str, resource: str, right: tuple[str, str]) -> str:
    """``needs the ACL Write on topic orders``."""
    kind, usual = right
    about = ", ".join(filter(None, map(_named, error.args)))
    asked, _, _ = resource.partition(" ")
    if asked == f"{kind}s" and about:  # of many resources asked for, Kafka names those concerned
        resource = f"{kind} {about}"
    elif not resource.startswith(kind):  # the error was met on the way to another resource
        resource = f"{kind} {about}".rstrip()
        operation = operation if operation in _CARRIED_ON else ""
    needed = operation if operation in ACL_OPERATIONS else usual
    return f"needs the ACL {needed} on {resource}"


def _named(argument: object) -> str:
    """An argument of an error as text: texts, topics, partitions; never an object."""
    match argument:
        case str() | int():
            return str(argument).strip()
        case TopicPartition():
            return f"{argument.topic}/{argument.partition}"
        case set() | frozenset() | list() | tuple() | dict():
            return listed(sorted(filter(None, map(_named, argument))))
        case _:
            return ""


def topics_named(names: Iterable[str]) -> str:
    """Topics as the resource of an error: ``topic a``, or ``topics a, b, c and 197 more``."""
    asked = sorted(set(names))
    return f"topic{'' if len(asked) == 1 else 's'} {listed(asked)}"
