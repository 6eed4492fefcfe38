"""Selectors of a bridge: names, queues, ``/regular expressions/``, ``!`` exclusions; its target addresses;
pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.messages.addresses import QUEUE_MARK, QueueName, is_own
from bridge.settings.expressions import check_expression, matches_whole
from bridge.settings.kafka_names import is_hidden
from bridge.settings.names import check_user_name

#: Stands for the source address in `forwarding-address`.
ADDRESS_PLACE: Final = "{address}"


def check_selector(value: str) -> str:
    r"""`value` if it is a name, ``address::queue``, ``/regex/``, or a name or regex behind ``!``.

    Raises:
        ValueError: the rule that it breaks.
    """
    if not value.isprintable():
        raise ValueError(
            r"must not hold control characters: in double quotes a backslash is an escape, so write a regex "
            r"in single quotes, '/orders\..*/'"
        )
    pattern = regex_of(value)
    if pattern is None:
        if value.startswith("/"):
            raise ValueError("must end in '/' as it begins, if it is a regex")
        if QUEUE_MARK in value:
            _check_queue_name(value)
        else:
            check_user_name(value.removeprefix("!"))
        return value
    check_expression(pattern)
    return value


def _check_queue_name(value: str) -> None:
    if value.startswith("!"):
        raise ValueError("must exclude an address, not one of its queues")
    for part in value.split(QUEUE_MARK, 1):
        check_user_name(part)


def regex_of(selector: str) -> str | None:
    """The expression of ``/regex/`` or ``!/regex/``; None for a name."""
    text = selector.removeprefix("!")
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return text[1:-1]
    return None


def plain_names(selectors: Sequence[str]) -> tuple[str, ...]:
    """The addresses that are named without a regular expression and not excluded, in order, each once."""
    names = (
        item
        for item in selectors
        if not item.startswith("!") and regex_of(item) is None and QUEUE_MARK not in item
    )
    return tuple(dict.fromkeys(name for name in names if not _any(selectors, name, excluding=True)))


def queue_names(selectors: Sequence[str]) -> tuple[QueueName, ...]:
    """The queues that are named with their addresses, in order, each once."""
    names = (item for item in selectors if regex_of(item) is None and QUEUE_MARK in item)
    return tuple(dict.fromkeys(QueueName(*name.split(QUEUE_MARK, 1)) for name in names))


def selects(
    selectors: Sequence[str], forwarding_address: str, address: str, *, dead_letter_address: str = ""
) -> bool:
    """Whether a bridge with these selectors reads `address`; an exclusion always wins.

    A regular expression must match the whole name. It never selects the node's own addresses, Kafka's
    internal topics, the addresses that the bridge itself forwards to (design section 5), or
    `dead_letter_address`, where it stores dead letters at its source: a letter that is refused would be
    stored there again.
    """
    if _any(selectors, address, excluding=True):
        return False
    if address in selectors:
        return True
    if is_own(address) or is_hidden(address) or address == dead_letter_address:
        return False
    return not _is_forwarded(forwarding_address, address) and _any(selectors, address, excluding=False)


def forwarded(forwarding_address: str, address: str) -> str:
    """The target's address of messages that came from `address`."""
    return forwarding_address.replace(ADDRESS_PLACE, address) if forwarding_address else address


def check_forwarding_address(value: str) -> str:
    """`value` if it is empty or makes an address of every address.

    Raises:
        ValueError: the rule that it breaks.
    """
    if value:
        try:
            check_user_name(value.replace(ADDRESS_PLACE, "a"))
        except ValueError as error:
            raise ValueError(f"{error}, and may hold {ADDRESS_PLACE}") from None
    return value


def _is_forwarded(forwarding_address: str, address: str) -> bool:
    before, place, after = forwarding_address.partition(ADDRESS_PLACE)
    if not place:
        return address == forwarding_address
    return bool(before or after) and address.startswith(before) and address.endswith(after)


def _any(selectors: Sequence[str], address: str, *, excluding: bool) -> bool:
    return any(_means(item, address) for item in selectors if item.startswith("!") == excluding)


def _means(selector: str, address: str) -> bool:
    pattern = regex_of(selector)
    if pattern is None:
        return selector.removeprefix("!") == address
    return matches_whole(pattern, address)
