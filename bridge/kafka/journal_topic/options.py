"""The settings of a bridge that concern its journal topic. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """The settings that concern the state of each lane."""

    #: The node UUID of a journal source, before its keys: nodes share partitions, each with a state of its
    #: own. Empty: a lane has its partition to itself.
    owner: str = ""
    #: Capacity of a target address's ID cache; 0: none.
    id_cache_size: Callable[[str], int]
    #: Whether IDs are stored, or kept in memory alone.
    persist_ids: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """The settings of a journal topic."""

    #: The bridge's name: the owner of the topic.
    bridge: str
    #: The topic's name (`journal-topic`).
    topic: str
    #: How many lanes the bridge has (`concurrency`), at least 1.
    lanes: int
    #: Of a topic that is made; -1: three, or as many as there are brokers.
    replication_factor: int
    #: The journal topic under the bridge's former name (`previous-name`); empty: it has none.
    previous_topic: str = ""
    #: Of each lane.
    state: StateOptions
