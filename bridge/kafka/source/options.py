"""The settings of a bridge that concern its Kafka source. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bridge.kafka.records.decoding import BatchOptions
from bridge.kafka.source.start_positions import GapPolicy
from bridge.messages.addresses import WantedType
from bridge.settings.bridges import Bridge
from bridge.settings.listeners import Acceptor
from bridge.settings.model import Settings

StartPosition = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The topics that a bridge reads."""

    #: Whether the bridge reads a topic.
    selects: Callable[[str], bool]
    #: The address at the target for a topic here.
    forward: Callable[[str], str]
    #: Topics that the bridge names outright: a missing right to read one is an error.
    names: Sequence[str] = ()
    #: Whether the bridge reads no others: nothing is asked about other topics.
    names_only: bool = False
    #: What an address becomes that is made at the target; empty: as the target says.
    routing_type: WantedType = ""


def batch_options(bridge: Bridge, settings: Settings) -> BatchOptions:
    """The settings of a bridge for the batches that it reads."""
    acceptor = settings.acceptor or Acceptor()
    return BatchOptions(
        stamp=bridge.use_duplicate_detection,
        batch_bytes=bridge.batch_bytes,
        large_bytes=bridge.min_large_message_size_bytes,
        max_id_bytes=acceptor.max_duplicate_id_size_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The settings of a Kafka source, the same for all lanes of a bridge."""

    #: The bridge's name: it is part of the hop that messages get.
    bridge: str
    #: Id of the progress group.
    group: str
    #: The topics that it reads, and their addresses at the target.
    topics: TopicSelection
    #: For making batches of records.
    batches: BatchOptions
    #: Where partitions begin that exist at the bridge's first start ever.
    start_position: StartPosition
    #: What to do where the log no longer has the next position.
    gap_policy: GapPolicy
    #: At the log's end, fetch what arrives while a batch is unconfirmed all at once.
    lingers: bool = False
    #: Make the target record the bridge's first start (`bridge.kafka.source.first_start`).
    records_start: bool = False
    #: The bridge has a transformer: what it has made of messages that were sent before is not known.
    transforms: bool = False
    #: How long an open transaction may block the next records before it is logged, ms; -1: it never is.
    open_transaction_warn_after_ms: int = 60_000
