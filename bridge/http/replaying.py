"""``POST /v1/replays``: some positions of a replay plan's stream, sent again or looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta, Struct

from bridge.errors import JournalUnavailable, Malformed
from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.bodies import Query, read_value, wants_msgpack
from bridge.http.codec import Decoder, Position
from bridge.http.router import Addition
from bridge.messages import positions as run_arithmetic
from bridge.messages.positions import Runs
from bridge.replay.plans import POSITIONS_AT_ONCE, ReplayService
from bridge.replay.sending import Resent, Wanted

#: Bytes of a request: `POSITIONS_AT_ONCE` positions, no two of them adjacent, with room to spare.
BODY_MOST: Final = 1024 * 1024
_BODY_TIMEOUT_S: Final = 10.0


class PlanRequest(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A plan's name, one stream, and positions of it."""

    plan: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    bridge: str
    stream: str
    store: str
    positions: list[tuple[Position, Position]]
    force: bool = False
    dry_run: bool = False


_REQUEST: Final = Decoder(PlanRequest)


def replay_route(service: Callable[[], ReplayService | None]) -> Addition:
    """The route of the call; `service` returns the replay service, or None until the journal is open."""

    async def handle(request: web.Request, _principal: Principal) -> Answer:
        Query(request)
        asked: PlanRequest = await read_value(request, _REQUEST, BODY_MOST, _BODY_TIMEOUT_S)
        replays = service()
        if replays is None:
            raise JournalUnavailable("the journal is not open yet")
        wanted = Wanted(
            asked.plan, asked.bridge, asked.stream, asked.store, _checked(asked.positions), asked.force
        )
        outcome = await (replays.look(wanted) if asked.dry_run else replays.send(wanted))
        return answer(_shown(outcome), msgpack=wants_msgpack(request))

    return Addition("POST", "/v1/replays", handle, changes=True)


def _checked(positions: list[tuple[int, int]]) -> Runs:
    """Check the positions. Raises: Malformed: none, too many, or not ascending."""
    end = -1
    for index, (first, last) in enumerate(positions):
        if not end < first <= last:
            raise Malformed(
                f"positions ascend, [first, last], apart from each other; found {[first, last]} behind {end}",
                f"positions[{index}]",
            )
        end = last
    count = run_arithmetic.count(positions)
    if not 1 <= count <= POSITIONS_AT_ONCE:
        raise Malformed(
            f"1 to {POSITIONS_AT_ONCE} positions with one call; found {count}",
            "positions",
            POSITIONS_AT_ONCE,
            count,
        )
    return tuple(positions)


def _shown(outcome: Resent) -> dict[str, Any]:
    return {
        "sent": outcome.sent,
        "known": outcome.known,
        "earlier": outcome.earlier,
        "unknown": outcome.unknown,
        "filtered": outcome.filtered,
        "gone": outcome.gone,
        "refused": [{"position": position, "reason": reason} for position, reason in outcome.refused],
        "rest": outcome.rest,
    }
