"""`core-bridge dead-letters list|replay`: lists the dead letters of bridges, and sends them again."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from bridge.cli.endpoints import operations_connection
from bridge.cli.options import at_least
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient
from bridge.client.progress import warn

#: Letters asked for at a time, and positions sent with one call.
_PAGE: Final = 500

_EPILOG = f"""\
Asks --operations. `list` writes a line for each dead letter in the node's journal: its position there, its
bridge, where the message came from, its size, its duplicate ID, and why it was refused. `replay` sends some,
or all, back to the bridge that they died on, which delivers each once more; to no other reader. Mend the
cause first, or they come back as new dead letters. Asked for twice, a letter is sent once. Ends with

  replayed 2 skipped 0

examples:
  {PROGRAM} dead-letters list
  {PROGRAM} dead-letters list --format json
  {PROGRAM} dead-letters replay 1041 1042
  {PROGRAM} dead-letters replay --all

exit codes: 0 done, 1 no answer, or a letter that was named was not replayed, 2 wrong usage
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "list or resend what bridges could not deliver"
    parser = subparsers.add_parser(
        "dead-letters", help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    listing = verbs.add_parser("list", parents=[common], help="a line each", epilog=_EPILOG)
    listing.set_defaults(run=_list)
    replay = verbs.add_parser("replay", parents=[common], help="send letters again", epilog=_EPILOG)
    replay.add_argument(
        "positions", metavar="POSITION", nargs="*", type=_position, help="as `list` says; or all"
    )
    replay.add_argument("--all", action="store_true", help="every letter there is")
    replay.set_defaults(run=_replay)


def _position(text: str) -> int | None:
    """A position; None for ``all``."""
    return None if text == "all" else at_least(0)(text)


def _list(arguments: argparse.Namespace) -> int:
    asyncio.run(_show(arguments))
    return Exit.OK


async def _show(arguments: argparse.Namespace) -> None:
    async with NodeClient(operations_connection(arguments)) as client:
        async for letter in _letters(client):
            print(json.dumps(letter) if arguments.format == "json" else _line(letter))


async def _letters(client: NodeClient) -> AsyncIterator[dict[str, Any]]:
    """Every dead letter, a page at a time."""
    after = -1
    while True:
        answer = await client.call(
            "GET",
            "/v1/dead-letters",
            params={"after": after, "max": _PAGE},
            headers={"Accept": "application/json"},
        )
        page = answer.body["dead-letters"]
        for letter in page:
            yield letter
        if not page:
            return
        after = page[-1]["position"]


def _line(letter: dict[str, Any]) -> str:
    """``1041 orders-to-hub orders journal:...:orders:0 17 2000 bytes ID big-1: MESSAGE_TOO_LARGE: ...``."""
    identity = letter["duplicate-id"]
    shown = "none" if identity is None else identity if isinstance(identity, str) else identity["base64"]
    return (
        f"{letter['position']} {letter['bridge']} {letter['address']} {letter['stream']}"
        f" {letter['source-position']} {letter['size']} bytes ID {shown}: {letter['reason']}"
    )


def _replay(arguments: argparse.Namespace) -> int:
    if arguments.positions == [None]:
        arguments.positions, arguments.all = [], True
    if bool(arguments.positions) == arguments.all or None in arguments.positions:
        warn(f"{PROGRAM} dead-letters replay: name positions, or --all")
        return Exit.USAGE
    replayed, skipped = asyncio.run(_send(arguments))
    if arguments.format == "json":
        print(json.dumps({"replayed": replayed, "skipped": skipped}))
    else:
        for one in skipped:
            warn(f"{one['position']}: {one['reason']}")
        print(f"replayed {len(replayed)} skipped {len(skipped)}")
    return Exit.FAILED if skipped and not arguments.all else Exit.OK


async def _send(arguments: argparse.Namespace) -> tuple[list[int], list[dict[str, Any]]]:
    wanted: list[Any] = ["all"]
    if not arguments.all:
        positions = arguments.positions
        wanted = [positions[start : start + _PAGE] for start in range(0, len(positions), _PAGE)]
    replayed: list[int] = []
    skipped: list[dict[str, Any]] = []
    async with NodeClient(operations_connection(arguments)) as client:
        for some in wanted:
            answer = await client.call(
                "POST",
                "/v1/dead-letters/replay",
                body=json.dumps({"positions": some}).encode(),
                headers={"Accept": "application/json", "Content-Type": "application/json"},
            )
            replayed += answer.body["replayed"]
            skipped += answer.body["skipped"]
    return replayed, skipped
