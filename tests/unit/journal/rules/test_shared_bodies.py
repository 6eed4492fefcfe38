"""Which bodies of a commit group are stored once."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.journal.rules.arrivals import Arrivals
from bridge.journal.rules.shared_bodies import find_shared
from bridge.journal.rules.state import AddressState
from bridge.journal.values.options import AddressPolicy
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from dedup.cache import IdCache

A, B, C = (encode_message(Message(body)) for body in (b"a", b"b", b"c"))


def log(*sent: Sequence[bytes], apart: bool = False) -> Arrivals:
    """A log with these messages of clients."""
    arrivals = Arrivals(AddressState(1, "a", AddressPolicy(), "MULTICAST", 0, 0, 0, 0, 0, 0, 0, IdCache(0)))
    for encoded in sent:
        arrivals.add_messages(encoded, [], apart=apart)
    return arrivals


def found(*logs: Arrivals) -> list[list[bool]]:
    """By log, which of its blocks have a body that is stored once for several."""
    shared = find_shared(logs)
    return [[id(block) in shared for block, *_ in one.blocks()] for one in logs]


def test_logs_with_the_same_messages_share_one_body_however_they_came() -> None:
    logs = [log([A, B]), log([A], [B]), log([C]), log([A, B])]
    assert found(*logs) == [[True], [True], [False], [True]]
    shared = find_shared(logs)
    assert len({id(one) for one in shared.values()}) == 1
    assert len({one.body for one in shared.values()}) == 1


def test_a_block_that_a_bridge_brought_shares_its_body_with_the_copy_that_goes_on() -> None:
    block = pack([A, B])
    here, onward = log(), log()
    here.add_block(block)
    onward.add_block(block.for_queues(((2, ("q",)),)))
    assert found(here, onward) == [[True], [True]]


def test_bodies_that_only_look_alike_are_not_shared() -> None:
    """Count, length and the last message agree."""
    assert found(log([A, C]), log([B, C]), log([A, C])) == [[True], [False], [True]]
    assert found(log([A, C]), log([B, C]), log([B, C])) == [[False], [True], [True]]


def test_logs_with_more_or_fewer_messages_have_their_own() -> None:
    assert found(log([A, B]), log([A]), log([B])) == [[False], [False], [False]]
    assert found(log([A], [B], apart=True), log([A])) == [[True, False], [True]]
