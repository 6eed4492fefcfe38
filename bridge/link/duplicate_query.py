"""The duplicate query, `POST /v1/link/held`: which messages a node holds before they are sent again.

A call beside the link, used by `core-bridge replay --dry-run`; changes nothing. The messages that are then
sent are checked by the target itself, when it stores them. It is no frame: on a link a stream is opened by
asking about it, and that changes the target's record of it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bridge.errors import TargetUnavailable
from bridge.link import limits
from bridge.link.socket import Endpoint, post
from bridge.messages.block import Origin
from bridge.messages.origins import by_stream, overlaps
from bridge.replay.node_presence import PATH, Present, Question

#: Largest size of a question, in bytes.
QUESTION_MOST: Final = 4 * limits.MIB
#: Messages of one question: a plan sends at most 10,000 positions at a time (`bridge.replay.plans`).
ENTRIES_MOST: Final = 16 * limits.KIB
#: Messages of an answer; an address may hold one several times.
PRESENT_MOST: Final = 1024 * limits.KIB
#: Content type of question and answer.
CONTENT_TYPE: Final = "application/msgpack"

_NAME = Annotated[str, Meta(max_length=limits.NAME_MOST)]


class BoundedQuestion(Question, frozen=True, forbid_unknown_fields=True):
    """A question as it may come from another node."""

    bridge: _NAME
    stream: Annotated[str, Meta(max_length=limits.STREAM_MOST)]
    address: Annotated[str, Meta(max_length=limits.ADDRESS_MOST)]
    origins: Annotated[tuple[Origin, ...], Meta(max_length=ENTRIES_MOST)] = ()
    ids: Annotated[tuple[bytes, ...], Meta(max_length=ENTRIES_MOST)] = ()


_present = msgspec.msgpack.Decoder(Present)


async def ask(endpoint: Endpoint, question: Question, timeout_ms: int) -> Present:
    """The node's answer; one attempt, of `timeout_ms` at most (-1: no limit).

    Raises:
        TargetUnavailable: no answer, or one that cannot be read. TargetRefused: the credentials were refused.
    """
    body = await post(endpoint, PATH, msgspec.msgpack.encode(question), CONTENT_TYPE, timeout_ms)
    try:
        answer = _present.decode(body)
    except msgspec.DecodeError as error:
        raise TargetUnavailable(f"{endpoint.url}: its answer cannot be read: {error}") from error
    if wrong := beside(question, answer):
        raise TargetUnavailable(f"{endpoint.url}: {wrong}")
    return answer


def beside(question: Question, answer: Present) -> str:
    """The reason why the answer does not fit the question; empty: it fits. Expands nothing of the answer."""
    for known in answer.ids:
        if known not in range(len(question.ids)):
            return f"it knows ID {known}, and was asked for {len(question.ids)}"
    wanted = by_stream(question.origins)
    messages = 0
    for stream, first, last in answer.origins:
        asked = sum(high - low + 1 for low, high in overlaps(wanted.get(stream, ()), first, last))
        if asked != last - first + 1:
            return f"it has messages {first} to {last} of {stream}, which it was not asked for"
        messages += last - first + 1
    return f"it has {messages} messages: more than {PRESENT_MOST}" if messages > PRESENT_MOST else ""
