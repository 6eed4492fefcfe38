"""`[[bridges]]`: sources, targets, and the limits of retries and batches."""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ValidationInfo

from bridge.ends import JOURNAL
from bridge.messages.addresses import QueueName, WantedType
from bridge.settings import kafka_names, selectors
from bridge.settings.fields import (
    Attempts,
    AutoOrFlag,
    BlockSizeBytes,
    Condition,
    Count,
    Flag,
    ForwardingAddress,
    HopCount,
    Multiplier,
    OptionalName,
    OptionalUserName,
    PositiveTimeMs,
    PositiveTimeOrNeverMs,
    Priority,
    RateBytes,
    Replicas,
    Scalar,
    Selectors,
    SizeBytes,
    Table,
    TimeMs,
    TransformerPath,
    UserName,
    Windows,
    setting,
)


def _at_least_retry_interval(value: int, info: ValidationInfo) -> int:
    """The longest wait, raised to `retry-interval` where it is less: Artemis waits that at least."""
    retry_interval_ms: int = info.data.get("retry_interval_ms", 0)
    return max(value, retry_interval_ms)


LongestRetryMs = Annotated[PositiveTimeMs, AfterValidator(_at_least_retry_interval)]
#: Batches that `max-rate` makes smaller have up to this many bytes all the same: each costs a receipt.
LEAST_PACED_BATCH_BYTES: Final = 4 * 1024
Guarantee = Literal["exactly-once", "exactly-once-per-target", "at-least-once"]


class Bridge(Table):
    """One relay: from a source to a target."""

    name: UserName = setting("Unique; what commands, logs and the target's memory call the bridge.")
    previous_name: OptionalUserName = setting("Adopts the state of the bridge that had this name.", "")
    source_connector: str = setting('"journal" (this node) or the name of a Kafka connector.', JOURNAL)
    queue_names: Selectors = setting(
        "Address, address::queue or topic to read, or a list; '/regex/' in single quotes, '!name' excludes.",
        alias="queue-name",
        min_length=1,
    )
    forwarding_address: ForwardingAddress = setting(
        'Name at the target; default: the name it came from. "us.{address}" may use that.', ""
    )
    static_connectors: tuple[str, ...] = setting(
        'The target\'s connector ("journal": this node). Further ones are tried in this order: nodes only, '
        "from a journal.",
        min_length=1,
    )
    failover: Literal["refuse", "at-least-once"] = setting(
        "What to do when the target is another store than last time: refuse, or go on, at-least-once.",
        "refuse",
    )
    fail_back: Flag = setting(
        "Whether the bridge returns to the first connector by itself, once that can be reached again.", False
    )
    use_duplicate_detection: Flag = setting(
        "false turns off stamping, the ID check and atomicity: at least once, nothing more.", True
    )
    check_producer_ids: AutoOrFlag = setting(
        "Whether the target checks IDs that producers set: one producer may reach the address through "
        "several nodes. auto: for Kafka sources only.",
        True,
    )
    filter: Condition = setting("SQL-92 condition; the bridge passes over what it rejects.", "")
    transformer: TransformerPath = setting(
        "dotted.path:callable, in Python, that changes, drops or refuses each message.", ""
    )
    transformer_properties: dict[str, Scalar] = setting("Handed to the transformer.", {})
    routing_type: Literal["PASS", "STRIP", "ANYCAST", "MULTICAST"] = setting(
        "What an address made at the target becomes: PASS, STRIP, ANYCAST, MULTICAST.", "PASS"
    )
    concurrency: Count = setting(
        "Kafka sources: lanes; 1 keeps one ID cache per address, as Artemis does. From the journal: calls of "
        "the transformer at a time, in order for each key; one link carries all in order, and without a "
        "transformer it changes nothing.",
        1,
    )
    priority: Priority = setting(
        "0 to 9: of the bridges over one connector, lower ones give way while a higher one sends.",
        4,
    )
    retry_interval_ms: PositiveTimeMs = setting("Wait before connecting again.", 2000)
    retry_interval_multiplier: Multiplier = setting("Each further wait is this much longer.", 1.0)
    max_retry_interval_ms: LongestRetryMs = setting("Longest wait; never below retry-interval.", 2000)
    initial_connect_attempts: Attempts = setting(
        "Attempts to connect for the first time before the bridge is FAILED; -1 no end.", -1
    )
    reconnect_attempts: Attempts = setting(
        "Attempts to connect again before the bridge is FAILED; -1 no end.", -1
    )
    reconnect_attempts_same_node: Attempts = setting(
        "Of these, how many go to the connector used last before the others are tried, too; -1 all.", 10
    )
    confirmation_window_size_bytes: SizeBytes = setting(
        "Most bytes sent and not yet confirmed, per lane.", "10MiB"
    )
    producer_window_size_bytes: BlockSizeBytes = setting(
        "Largest batch, and the step in which a receiver grants credit.", "1MiB"
    )
    min_large_message_size_bytes: SizeBytes = setting(
        "From here on a message travels in a frame of its own.", "100KiB"
    )
    check_period_ms: PositiveTimeOrNeverMs = setting(
        "A ping goes out after this long without a whole frame; -1 never.", 30_000
    )
    connection_ttl_ms: PositiveTimeOrNeverMs = setting(
        "The link is dead after this long without a byte; longer than check-period; -1 never. A frame that "
        "has begun has to come at 100 bytes a second at least.",
        60_000,
    )
    call_timeout_ms: PositiveTimeMs = setting(
        "Longest wait for the handshake, for the transformer, and of a POST that BLOCK holds at an address "
        "that the bridge reads.",
        30_000,
    )
    max_rate_bytes: RateBytes = setting(
        'Most bytes of messages that the bridge sends a second, such as "50KiB", where others share the '
        "line; 0: no limit.",
        0,
    )
    schedule: Windows = setting(
        'Hours in which it sends: "Mon-Fri 22:00-06:00 Europe/Berlin", or a list of such; else it waits, '
        "without a connection.",
        (),
    )
    pending_ack_timeout_ms: TimeMs = setting("Stop and pause wait this long for receipts.", 60_000)
    max_delivery_attempts: Count = setting(
        "Tries of a message whose transformer raises; then it is refused for good.", 10
    )
    dead_letter_address: OptionalUserName = setting(
        "Where refused messages go; empty: the bridge is FAILED at the first one.", "dead-letters"
    )
    start_position: Literal["earliest", "latest"] = setting(
        "Kafka: where partitions start that are there at the first start ever.", "earliest"
    )
    gap_policy: Literal["stop", "continue"] = setting(
        "What the source no longer has: stop (FAILED, with the numbers) or continue (counted).", "stop"
    )
    open_transaction_warn_after_ms: PositiveTimeOrNeverMs = setting(
        "Kafka: an open transaction that holds back what comes next for longer is named; -1 never.", 60_000
    )
    preserve_partitions: Flag = setting(
        "Kafka to Kafka: the same partition at the target; false, and from a journal: by key.", True
    )
    create_topics: Flag = setting("Kafka: makes topics that the target lacks.", True)
    add_partitions: Flag = setting(
        "Kafka: adds partitions where the target has fewer than the source.", False
    )
    topic_replication_factor: Replicas = setting(
        "Kafka: of topics made at the target; -1: the cluster's default.", -1
    )
    journal_topic: OptionalName = setting(
        "Kafka targets: the bridge's own topic; default core-bridge.<name>.journal.", ""
    )
    journal_replication_factor: Replicas = setting(
        "Kafka: of the journal topic; -1: 3, or the number of brokers if that is less.", -1
    )
    group_id: OptionalName = setting("Kafka sources: consumer group; default core-bridge.<name>.", "")
    max_hops: HopCount = setting("Most bridges that one message may pass; guards against loops.", 8)

    @property
    def reads_journal(self) -> bool:
        """Whether its source is this node's journal."""
        return self.source_connector == JOURNAL

    @property
    def batch_bytes(self) -> int:
        """The largest batch that is read: `producer-window-size`, and no more than `max-rate` lets pass in a
        second, so that the line is not filled in bursts.
        """
        if not self.max_rate_bytes:
            return self.producer_window_size_bytes
        return min(self.producer_window_size_bytes, max(self.max_rate_bytes, LEAST_PACED_BATCH_BYTES))

    @property
    def callers(self) -> int:
        """Most calls of its transformer at a time, in each lane."""
        return self.concurrency if self.reads_journal else 1

    @property
    def calls_at_a_time(self) -> str:
        """The meaning of `callers` above 1, in words; empty: one calls at a time."""
        if self.callers == 1:
            return ""
        called = f"{self.callers} calls of the transformer at a time, in order for each key"
        return f"one link, all in order; {called if self.transformer else 'no effect without a transformer'}"

    @property
    def checks_producer_ids(self) -> bool:
        """`check_producer_ids` with auto decided: a journal source has checked the IDs already.

        Without `use_duplicate_detection` nothing is checked: the setting turns off the ID check, too.
        """
        if self.check_producer_ids == "auto":
            return self.use_duplicate_detection and not self.reads_journal
        return self.use_duplicate_detection and self.check_producer_ids

    @property
    def own_topic(self) -> str:
        """The journal topic at a Kafka target: `journal-topic`, or its default."""
        return self.journal_topic or kafka_names.journal_topic(self.name)

    @property
    def own_group(self) -> str:
        """The consumer group of a Kafka source: `group-id`, or its default."""
        return self.group_id or kafka_names.group_id(self.name)

    @property
    def guarantee(self) -> Guarantee:
        """The bridge's guarantee, as `validate` and the log name it."""
        if not self.use_duplicate_detection or self.failover == "at-least-once":
            return "at-least-once"
        return "exactly-once"

    @property
    def plain_addresses(self) -> tuple[str, ...]:
        """The addresses that `queue-name` names without a regular expression."""
        return selectors.plain_names(self.queue_names)

    @property
    def shared_queues(self) -> tuple[QueueName, ...]:
        """The queues that `queue-name` names with their addresses: ``orders::billing``."""
        return selectors.queue_names(self.queue_names)

    @property
    def names_only(self) -> bool:
        """Whether `queue-name` has no regular expression that selects addresses."""
        return not any(
            selectors.regex_of(item) is not None for item in self.queue_names if not item.startswith("!")
        )

    def selects(self, address: str) -> bool:
        """Whether the bridge reads this address."""
        own = self.dead_letter_address if self.reads_journal else ""
        return selectors.selects(self.queue_names, self.forwarding_address, address, dead_letter_address=own)

    def selects_topic(self, topic: str) -> bool:
        """Whether the bridge reads this topic of a Kafka cluster.

        As `selects`; besides, a regular expression never means the bridge's own journal topic.
        """
        return self.selects(topic) and (topic != self.own_topic or topic in self.queue_names)

    def target_address(self, address: str) -> str:
        """The target's address of messages that came from `address`."""
        return selectors.forwarded(self.forwarding_address, address)

    def target_routing_type(self, routing_type: WantedType) -> WantedType:
        """The type of an address made at the target for messages of `routing_type` (empty: of a topic)."""
        if self.routing_type == "PASS":
            return routing_type
        return "" if self.routing_type == "STRIP" else self.routing_type

    def by(self, connector: str) -> Bridge:
        """The bridge with this connector alone."""
        return self.model_copy(update={"static_connectors": (connector,)})

    @property
    def source(self) -> str:
        """The source in words: the connector, and the addresses read there: ``journal:orders``."""
        return f"{self.source_connector}:{','.join(self.queue_names)}"

    @property
    def target(self) -> str:
        """The target in words: its connectors: ``hub``."""
        return ",".join(self.static_connectors)

    def __str__(self) -> str:
        """The bridge in words: ``orders-to-hub: journal:orders -> hub: exactly-once``; with its filter and
        transformer.
        """
        condition = f", filter {json.dumps(self.filter, ensure_ascii=False)}" if self.filter else ""
        transformer = f", transformer {self.transformer}" if self.transformer else ""
        return f"{self.name}: {self.source} -> {self.target}: {self.guarantee}{condition}{transformer}"
