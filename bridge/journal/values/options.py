"""The journal's options: plain values, read from the settings by `bridge.node.wiring`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from bridge.journal.values.routing import Router
from bridge.messages.addresses import QueueName, RoutingType, WantedType
from bridge.messages.stream_names import is_forward_log, is_own_log, source_address
from bridge.relay.ports import Stream

#: How long a client's command waits for room, unless the settings say less or more, ms.
CALL_TIMEOUT_MS: Final = 30_000
#: Bytes of client messages that may wait for a commit, blocked ones apart; beyond it callers get TOO_BUSY.
INBOX_BYTES: Final = 64 * 1024 * 1024
#: Most bytes and commands that go into one commit.
GROUP_BYTES: Final = 8 * 1024 * 1024
GROUP_COMMANDS: Final = 2048
#: Client messages of one commit are cut into blocks of about this size (the default producer-window-size).
BLOCK_BYTES: Final = 1024 * 1024
#: A message of this size has a block of its own (the default min-large-message-size).
LARGE_BYTES: Final = 100 * 1024
#: The log is checkpointed after about this many bytes of messages: the file may have to grow by as much then.
CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
#: Bytes allocated for the log; from four fifths of them on it is checkpointed, and begins anew.
LOG_BYTES: Final = 40 * 1024 * 1024
#: Most blocks, most large bodies and most bytes trimmed with one commit (some milliseconds).
TRIM_BLOCKS: Final = 64
TRIM_BYTES: Final = 64 * 1024 * 1024
#: The file may hold this much more than its live data before it is shrunk.
SLACK_BYTES: Final = 32 * 1024 * 1024
#: Interval between attempts: to store while the disk or an address is full, to open a journal that failed.
RETRY_MS: Final = 500
#: Bytes kept aside on the disk, so that messages on a full one can still be read and settled: room for the
#: log to be checkpointed.
RESERVE_BYTES: Final = 24 * 1024 * 1024
#: On a small disk the three are smaller, in proportion: the reserve is at most this share of it ...
RESERVE_SHARE: Final = 32
#: ... but not less than this. A disk without room for reserve and log takes no messages.
RESERVE_LEAST_BYTES: Final = 4 * 1024 * 1024
#: Leases that one queue may have at a time.
LEASES: Final = 1000
#: Stretches of messages under the leases of a queue with a filter: what it does not take lies between them.
LEASED_INTERVALS: Final = 10_000
#: Blocks that one command passes over because nothing in them is addressed to its queue.
PASSED_BLOCKS: Final = 1024
#: Queues of one address that went by themselves and are remembered, beyond which no other goes: a reader that
#: comes back goes on where its queue was.
GONE_QUEUES: Final = 1000
#: Queues with a filter of one address, beyond which callers can make no more: each is asked for each message.
FILTERED_QUEUES: Final = 100


@dataclass(frozen=True, slots=True)
class UnusedPolicy:
    """The settings of one address about queues and addresses that come and go by themselves."""

    #: ``auto-create-queues``: a reader makes the queue that it names.
    create_queues: bool = False
    #: ``auto-delete-queues``, and its delay, message count (-1: any) and usage check.
    delete_queues: bool = False
    queues_delay_ms: int = 60_000
    queues_message_count: int = 0
    queues_skip_usage_check: bool = False
    #: ``auto-delete-created-queues``: queues that were not made automatically, too.
    delete_created_queues: bool = False
    #: ``auto-delete-addresses``, and its delay and usage check.
    delete_addresses: bool = False
    addresses_delay_ms: int = 600_000
    addresses_skip_usage_check: bool = False


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The settings of one address, resolved."""

    max_size_bytes: int = 1 << 30
    full_policy: Literal["BLOCK", "FAIL"] = "BLOCK"
    id_cache_size: int = 20_000
    auto_create: bool = True
    #: Messages that every queue has passed stay so long, in milliseconds; -1: for ever. Only while the
    #: address holds no more than half of `max_size_bytes`: new messages have precedence.
    retain_time_ms: int = 0
    #: The routing type of an address that is made without one.
    routing_type: RoutingType = "MULTICAST"
    unused: UnusedPolicy = UnusedPolicy()

    @property
    def retain_bytes(self) -> int:
        """Bytes that an address may hold before passed messages go earlier than `retain_time_ms` says."""
        return self.max_size_bytes // 2


@dataclass(frozen=True, slots=True)
class SharedNames:
    """The names in a bridge's `queue-name` that may be names of queues, which others read, too."""

    #: Named with their addresses.
    queues: Sequence[QueueName] = ()
    #: Names of no configured address: each may be that of a queue.
    candidates: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BridgeQueue:
    """The queue that a configured bridge reads from, on each address that it selects."""

    bridge: str
    #: Addresses made at opening; others are selected when they are made.
    addresses: Sequence[str]
    selects: Callable[[str], bool]
    #: `previous-name`: the bridge whose queues it adopts where it has none of its own; empty: none.
    previous: str = ""
    shared: SharedNames = SharedNames()
    #: How long a client's transaction waits for room at an address that the bridge reads (`call-timeout`).
    call_timeout_ms: int = CALL_TIMEOUT_MS

    def reads(self, address: str) -> bool:
        """Whether the bridge reads messages that wait at `address`, replays and its own logs included."""
        return _reads(address, self.selects, self.shared)

    def reads_sent(self, address: str) -> bool:
        """Whether the bridge reads what clients send to `address`."""
        return self.selects(address) or any(name.address == address for name in self.shared.queues)


@dataclass(frozen=True, slots=True)
class BridgeSelection:
    """The addresses that a bridge reads from the journal, and their addresses at the target."""

    bridge: str
    #: Whether the bridge reads an address.
    selects: Callable[[str], bool]
    #: The address at the target for an address here.
    forward: Callable[[str], str]
    shared: SharedNames = SharedNames()
    #: What an address becomes that is made at the target, by the type of the address here.
    target_type: Callable[[RoutingType], WantedType] = lambda _type: ""
    #: The bridge has a transformer: what it has made of messages that were sent before is not known.
    transforms: bool = False

    def reads(self, address: str) -> bool:
        """As `BridgeQueue.reads`."""
        return _reads(address, self.selects, self.shared)

    def stream(self, identity: str, address: str, run: str, routing_type: RoutingType) -> Stream:
        """The stream of messages that came to an address of this type."""
        return Stream(
            identity, address, self.forward(address), run, routing_type=self.target_type(routing_type)
        )


def _reads(address: str, selects: Callable[[str], bool], shared: SharedNames) -> bool:
    if is_own_log(address) or is_forward_log(address):  # only one bridge has a queue there
        return True
    source = source_address(address)
    return selects(source) or (source != address and any(name.address == source for name in shared.queues))


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """All options of the journal."""

    directory: Path
    node: str = "node"
    policy: Callable[[str], AddressPolicy] = field(default=lambda _address: AddressPolicy())
    persist_id_cache: bool = True
    #: Declared addresses and the queues made for them at opening.
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: The conditions of declared queues, by address and queue; the others take every message.
    queue_filters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bridges: Sequence[BridgeQueue] = ()
    max_message_bytes: int = 16 * 1024 * 1024
    #: Longest duplicate ID of a producer (`max-duplicate-id-size`).
    max_id_bytes: int = 1024
    #: How long a command waits for room (BLOCK, full disk); with BLOCK less where a bridge says so.
    call_timeout_ms: int = CALL_TIMEOUT_MS
    #: Client transactions that may be blocked for want of room at a time, and their bytes; further ones are
    #: refused.
    max_held_requests: int = 256
    max_held_bytes: int = 64 * 1024 * 1024
    #: Addresses, and readers' queues of all of them, beyond which callers can make no more.
    max_addresses: int = 10_000
    max_queues: int = 10_000
    #: Where messages become dead letters whose queue is gone.
    dead_letter_address: str = "dead-letters"
    #: Whether some address deletes queues, or itself, when they are not used any more.
    deletes_unused: bool = False
    #: Whether outbox rows are written.
    delivery_log: bool = True
    #: Decides where clients' messages are stored; None: at the address that they name.
    router: Router | None = None

    def with_addresses_of(self, other: JournalOptions) -> JournalOptions:
        """These options, with the settings of addresses that `other` has."""
        return replace(
            self,
            policy=other.policy,
            addresses=other.addresses,
            queue_filters=other.queue_filters,
            deletes_unused=other.deletes_unused,
        )


#: The node's own cursor on an address of dead letters: letters that were sent again from there are settled in
#: it. It keeps letters only where no other queue is on the address.
REPLAYED_QUEUE: Final = "$replayed"


def bridge_queue_name(bridge: str) -> str:
    """A bridge's queue is the node's own, hence the `$`."""
    return f"$bridge.{bridge}"
