"""Which member of a group owns which lane: balanced, sticky, and the same whoever leads. Pure.

A lane is given away as a whole and by its number: which partitions it stands for follows from
`bridge.kafka.identity.lane_of`, so topics that appear or are matched later change nothing here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

#: Layout of `encode`; what says another number is read as nothing.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member was given last."""

    lanes: frozenset[int] = frozenset()
    #: The group's generation that gave it; -1: none. Of two claims the newer one counts.
    generation: int = -1


def protocol_name(lanes: int, whose: str = "") -> str:
    """The name under which members join: the coordinator lets only equal ones into a group.

    So members that count lanes differently (another `concurrency`) never share any, nor do two bridges with
    one `group-id`: each would leave the other's part of its lanes to nobody. `whose` says which bridge.
    """
    return f"core-bridge-lanes-{lanes}{f'-{zlib.crc32(whose.encode()):08x}' if whose else ''}"


def encode(claim: Claim) -> bytes:
    """What a member says when it joins, and what the leader answers."""
    return json.dumps({"v": VERSION, "generation": claim.generation, "lanes": sorted(claim.lanes)}).encode()


def decode(data: bytes) -> Claim:
    """The reverse of `encode`; what cannot be read claims nothing."""
    try:
        said = json.loads(data)
        if said["v"] != VERSION:
            return Claim()
        return Claim(frozenset(int(lane) for lane in said["lanes"]), int(said["generation"]))
    except (ValueError, TypeError, KeyError):
        return Claim()


def assign(lanes: int, claims: Mapping[str, Claim]) -> dict[str, frozenset[int]]:
    """Lanes ``0..lanes-1`` over the members of a group, given what each claims.

    No two members differ by more than one lane, and no other division that is as even moves fewer lanes.
    Depends on nothing but its arguments, and not on their order.
    """
    assert claims, "a group without members has nobody to own its lanes"
    held = _undisputed(lanes, claims)
    each, more = divmod(lanes, len(claims))
    # One lane more goes to those that hold most: it need not be taken from them.
    eager = sorted(claims, key=lambda member: (-len(held[member]), member))
    room = {member: each + (place < more) for place, member in enumerate(eager)}
    given = {member: set(sorted(held[member])[: room[member]]) for member in eager}
    free = iter(sorted(set(range(lanes)).difference(*given.values())))
    for member in eager:
        for _ in range(room[member] - len(given[member])):
            given[member].add(next(free))
    return {member: frozenset(owned) for member, owned in given.items()}


def _undisputed(lanes: int, claims: Mapping[str, Claim]) -> dict[str, set[int]]:
    """Each lane for the one member whose claim is newest."""
    held: dict[str, set[int]] = {member: set() for member in claims}
    taken: set[int] = set()
    for member, claim in _newest_first(claims.items()):
        held[member] = {lane for lane in claim.lanes if 0 <= lane < lanes} - taken
        taken |= held[member]
    return held


def _newest_first(claims: Iterable[tuple[str, Claim]]) -> list[tuple[str, Claim]]:
    return sorted(claims, key=lambda entry: (-entry[1].generation, entry[0]))
