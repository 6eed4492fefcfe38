"""The bridges that an operator has stopped or paused: they stay so when the node starts again.

Kept in the journal as one note. A stop or pause is stored before it is carried out, and forgotten before the
bridge starts again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.journal.journal import Journal
from bridge.journal.rules.commands import NoteCommand
from bridge.journal.sqlite.notes import read_note
from bridge.relay.lifecycle import Command

#: The name of the note: a JSON object, by bridge ``stop`` or ``pause``.
_NOTE: Final = "held-bridges"
#: Bridges that are remembered; those that were held first are forgotten beyond it.
MOST_HELD: Final = 10_000


class HeldBridges:
    """What an operator has told bridges to do, as the journal has it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._held: dict[str, Command] = {}

    async def load(self) -> None:
        """Read the note. Raises: BridgeError."""
        found = await self._journal.look(read_note, _NOTE)
        self._held = {} if found is None else msgspec.json.decode(found, type=dict[str, Command])

    def of(self, bridge: str) -> Command | None:
        """STOP or PAUSE where an operator has told the bridge so; None: it runs."""
        return self._held.get(bridge)

    async def keep(self, bridge: str, command: Command) -> None:
        """Remember a stop or pause, forget it with a start or resume. Raises: BridgeError: not stored."""
        held = {name: kept for name, kept in self._held.items() if name != bridge}
        if command in (Command.STOP, Command.PAUSE):
            held[bridge] = command
            held = dict(list(held.items())[-MOST_HELD:])
        if held == self._held:
            return
        value = msgspec.json.encode(held).decode() if held else None
        await self._journal.submit(NoteCommand, name=_NOTE, value=value)
        self._held = held
