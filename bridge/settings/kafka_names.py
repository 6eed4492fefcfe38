"""Names that a bridge gives its topics and its group on Kafka where settings give none. Pure."""

from __future__ import annotations

from typing import Final

#: Topics and groups that start like this are a bridge's own; regexes never match them.
OWN_PREFIX: Final = "core-bridge."


#: Kafka's internal topics, which regexes never match either.
INTERNAL_PREFIX: Final = "__"


def journal_topic(bridge: str) -> str:
    """Default of `journal-topic`."""
    return f"{OWN_PREFIX}{bridge}.journal"


def replays_topic(bridge: str) -> str:
    """The journal topic of a bridge's replay plans: the lanes of its own topic belong to its relays."""
    return f"{OWN_PREFIX}{bridge}.replays"


def group_id(bridge: str) -> str:
    """Default of `group-id`: the group whose members own the lanes."""
    return f"{OWN_PREFIX}{bridge}"


def is_hidden(topic: str) -> bool:
    """Whether no regular expression may select this topic."""
    return topic.startswith((INTERNAL_PREFIX, OWN_PREFIX))
