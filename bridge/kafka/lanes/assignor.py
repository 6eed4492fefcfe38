"""Assigns lanes to the members of a group: balanced, sticky, and the same whichever member leads. Pure.

A lane is assigned as a whole and by its number: which partitions it stands for follows from
`bridge.kafka.records.identity.lane_of`, so topics that appear or are matched later change nothing here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

#: Layout of `encode`; a claim with another version number is read as an empty one.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's claim, which it sends when it joins."""

    #: The lanes that it was given last.
    lanes: frozenset[int] = frozenset()
    #: The group's generation that gave it; -1: none. Of two claims the newer one counts.
    generation: int = -1
    #: Lanes that have FAILED at this member: it is given none of them.
    failed: frozenset[int] = frozenset()
    #: The member's name in a status.
    name: str = ""


def protocol_name(lanes: int, whose: str = "") -> str:
    """The name under which members join: the coordinator lets only equal ones into a group.

    So members that count lanes differently (another `concurrency`) never share any, nor do two bridges with
    one `group-id`: each would leave the other's part of its lanes to no member. `whose` names the bridge.
    """
    return f"core-bridge-lanes-{lanes}{f'-{zlib.crc32(whose.encode()):08x}' if whose else ''}"


def encode(claim: Claim) -> bytes:
    """Encode what a member sends when it joins, or what the leader answers."""
    said = {
        "v": VERSION,
        "generation": claim.generation,
        "lanes": sorted(claim.lanes),
        "failed": sorted(claim.failed),
        "name": claim.name,
    }
    return json.dumps(said).encode()


def decode(data: bytes) -> Claim:
    """The reverse of `encode`; unreadable data is an empty claim."""
    try:
        said = json.loads(data)
        if said["v"] != VERSION:
            return Claim()
        return Claim(
            frozenset(int(lane) for lane in said["lanes"]),
            int(said["generation"]),
            # Members of a version that gave no lane up say neither.
            frozenset(int(lane) for lane in said.get("failed", ())),
            str(said.get("name", "")),
        )
    except (ValueError, TypeError, KeyError):
        return Claim()


def assign(lanes: int, claims: Mapping[str, Claim]) -> dict[str, frozenset[int]]:
    """Divide the lanes ``0..lanes-1`` over the members of a group, given what each claims.

    Where no lane has failed, no two members differ by more than one lane, and no other division that is as
    even moves fewer lanes. A member on which a lane has failed keeps the others that it has, up to an even
    share, and takes a new one only where every member has failed on some lane: the cause may lie in the node,
    and then the next lane fails on it too. A lane that has failed on every member that could take it is given
    to none.

    Depends on nothing but its arguments, and not on their order.
    """
    assert claims, "a group without members has no owner for its lanes"
    given = _undisputed(lanes, claims)
    takers = sorted(member for member in claims if not claims[member].failed) or sorted(claims)
    for lane in sorted(set(range(lanes)).difference(*given.values())):
        able = [member for member in takers if lane not in claims[member].failed]
        if able:
            given[min(able, key=lambda member: len(given[member]))].add(lane)
    while (move := _uneven(given, takers, claims)) is not None:
        giver, lane, taker = move
        given[giver].remove(lane)
        given[taker].add(lane)
    return {member: frozenset(owned) for member, owned in given.items()}


def _uneven(
    given: Mapping[str, Set[int]], takers: Sequence[str], claims: Mapping[str, Claim]
) -> tuple[str, int, str] | None:
    """A move of a lane that makes the division more even: from, lane, to; None: there is none.

    So the result is a division that `assign` leaves unchanged.
    """
    for giver in sorted(given, key=lambda member: (-len(given[member]), member)):
        poorer = [member for member in takers if len(given[giver]) - len(given[member]) > 1]
        for lane in sorted(given[giver], reverse=True) if poorer else ():
            able = [member for member in poorer if lane not in claims[member].failed]
            if able:
                return giver, lane, min(able, key=lambda member: len(given[member]))
    return None


def _undisputed(lanes: int, claims: Mapping[str, Claim]) -> dict[str, set[int]]:
    """Each lane at the one member whose claim is newest."""
    owned: dict[str, set[int]] = {member: set() for member in claims}
    taken: set[int] = set()
    for member, claim in _newest_first(claims.items()):
        owned[member] = {lane for lane in claim.lanes - claim.failed if 0 <= lane < lanes} - taken
        taken |= owned[member]
    return owned


def _newest_first(claims: Iterable[tuple[str, Claim]]) -> list[tuple[str, Claim]]:
    return sorted(claims, key=lambda entry: (-entry[1].generation, entry[0]))
