from __future__ import annotations

from bridge.link.node_ends import _paced
from bridge.messages.block import KeptBody
from bridge.messages.message import LargeBody
from bridge.relay.pacing import Pacer
from tests.fakes.virtual_time import in_virtual_time, now_ms

KEPT = KeptBody(7, LargeBody(4_000, b""))


async def read(kept: KeptBody, number: int) -> bytes:
    assert kept is KEPT
    return b"%d" % number * 1_000


@in_virtual_time
async def test_each_chunk_of_a_large_body_waits_for_the_rate_of_its_bridge() -> None:
    paced = _paced(read, Pacer(1_000))
    assert paced is not None
    came = [(await paced(KEPT, number), now_ms()) for number in range(4)]
    assert [chunk for chunk, _ in came] == [b"%d" % number * 1_000 for number in range(4)]
    assert [at_ms for _, at_ms in came] == [0, 1_000, 2_000, 3_000]


def test_without_a_rate_chunks_are_read_as_they_are() -> None:
    assert _paced(read, None) is read
    assert _paced(None, Pacer(1_000)) is None
