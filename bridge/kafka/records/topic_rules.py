"""The rules of a target topic, from its configuration (docs/kafka-traps.md 12, 13). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.messages.message import Message

#: Kafka's own default, for a limit of a topic whose configuration may not be read: then the broker decides.
UNKNOWN_LIMIT: Final = 2**63 - 1
#: The timestamp of records without one; brokers accept them whatever the topic's limits are.
NO_TIMESTAMP: Final = -1
#: The beginning of the reason where a broker refuses a record for its time.
INVALID_TIMESTAMP: Final = "INVALID_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules of one topic of the target, as of the last opening."""

    name: str
    #: Number of partitions.
    partitions: int
    #: Most bytes of a record batch; `UNKNOWN_LIMIT` where it could not be read.
    max_message_bytes: int = UNKNOWN_LIMIT
    #: How far a record's timestamp may lie before and after the broker's clock, ms.
    before_max_ms: int = UNKNOWN_LIMIT
    after_max_ms: int = UNKNOWN_LIMIT
    #: Whether the broker replaces every timestamp with its own time (message.timestamp.type=LogAppendTime).
    log_append_time: bool = False
    #: Whether records need a key.
    compacted: bool = False
    #: Number of in-sync replicas without which the broker stores nothing.
    min_insync_replicas: int = 1
    #: The topic's id: a topic re-created under this name has another. Empty: not known.
    id: str = ""

    def timestamp_range(self, now_ms: int) -> tuple[int, int]:
        """The first and last timestamp that the topic takes now, by this process's clock."""
        if self.log_append_time:
            return -UNKNOWN_LIMIT, UNKNOWN_LIMIT
        return now_ms - self.before_max_ms, now_ms + self.after_max_ms

    def refuses(self, message: Message) -> str | None:
        """The rule, as `CODE: detail`, by which a message can never be stored here; None: none is known.

        The message's size is not checked: only the finished record batch has one (`too_large`). Nor is its
        time: this machine's clock may be wrong, so the broker decides (`bridge.kafka.target.doubts`).
        """
        if self.compacted and message.key is None:
            return (
                f"INVALID_RECORD: the message has no key, and topic {self.name} is compacted (cleanup.policy)"
            )
        return None

    def all_refused(self, messages: Sequence[Message]) -> dict[int, str]:
        """Index and rule of each message that `refuses` names."""
        if not self.compacted:
            return {}
        reasons = ((index, self.refuses(message)) for index, message in enumerate(messages))
        return {index: reason for index, reason in reasons if reason is not None}

    def time_limits(self, message: Message, now_ms: int) -> str:
        """A message's time and the topic's limits, to explain why a broker refused the message."""
        ahead_ms = message.timestamp - now_ms
        return (
            f"the message is of {message.timestamp}, {ahead_ms} ms from this machine's time; "
            f"topic {self.name} takes from {self.before_max_ms} ms before the broker's "
            f"(message.timestamp.before.max.ms) to {self.after_max_ms} after (message.timestamp.after.max.ms)"
        )

    def too_large(self, size: int) -> str:
        """The reason why a record batch of `size` bytes with one message can never be stored here."""
        return (
            f"MESSAGE_TOO_LARGE: {size} bytes with key, headers and frame; topic {self.name} takes "
            f"{self.max_message_bytes} (max.message.bytes)"
        )


def rules_of(
    name: str, partitions: int, configuration: Mapping[str, str | None], *, id_: str = ""
) -> TopicRules:
    """A topic's rules from its configuration as the broker describes it; missing keys are unknown limits."""

    def number(key: str, otherwise: int) -> int:
        value = configuration.get(key)
        return int(value) if value else otherwise

    return TopicRules(
        name,
        partitions,
        max_message_bytes=number("max.message.bytes", UNKNOWN_LIMIT),
        before_max_ms=number("message.timestamp.before.max.ms", UNKNOWN_LIMIT),
        after_max_ms=number("message.timestamp.after.max.ms", UNKNOWN_LIMIT),
        log_append_time=configuration.get("message.timestamp.type") == "LogAppendTime",
        compacted="compact" in (configuration.get("cleanup.policy") or ""),
        min_insync_replicas=number("min.insync.replicas", 1),
        id=id_,
    )
