"""Whether the disk has room for messages: measured before they are taken, and known from failed commits.

Messages are taken as long as they leave the reserve, the bytes that the log needs and those by which the file
grows when the log is copied. So the journal's own messages never take the room in which they are read,
settled and trimmed. Bytes that other programs take of the disk are seen at the next measurement, or by a
commit that fails: then the reserve is given up for all commands that bring no messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bridge.errors import BridgeError, DiskFull
from bridge.journal.rules.commands import WriteCommand
from bridge.journal.sqlite.reserve import Reserve, Shares, free_bytes
from bridge.journal.sqlite.vacuum import Space
from bridge.journal.values.options import RETRY_MS
from bridge.journal.writer.condition import Event, FileCondition
from bridge.runtime.clock import Clock

#: Messages wait from where less than this share of the reserve is left for them, until there is this much.
_FULL_SHARE: Final = 8
_ROOM_SHARE: Final = 2
#: Rows that are added without a check for room, until the next measurement: of settlements, queues,
#: delivery-log lines; as a share of the reserve.
_MARGIN_SHARE: Final = 4
#: Bytes that a group adds to its messages in the file, about.
_GROUP_BYTES: Final = 64 * 1024


class Room:
    """Owned by the writer's thread; moves the file's condition between room and no room."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """`path` is the journal's file."""
        #: The condition of the file.
        self.condition = FileCondition()
        self._path = path
        self._clock = clock
        self._reserve = Reserve(path.parent)
        self._look_at_ms = 0
        #: Bytes of messages that may come before the room is measured again, and the time until which it may
        #: be relied on.
        self._left = 0
        self._believed_until_ms = 0

    @property
    def shares(self) -> Shares:
        """The bytes of the disk that are kept aside."""
        return self._reserve.shares

    @property
    def has_reserve(self) -> bool:
        """Whether there is a reserve to give up."""
        return self._reserve.is_allocated

    @property
    def idle_seconds(self) -> float | None:
        """Seconds until room is looked for again; None: there is room."""
        if not self.condition.is_full:
            return None
        return max(self._look_at_ms - self._clock.monotonic_ms(), 0) / 1000

    def begin(self, space: Space) -> None:
        """Measure the room before the first command: a node may start on a full disk."""
        if not self._has_room(space):
            self._fill("what is left of it is kept for reading")

    def admit(self, commands: Sequence[WriteCommand], space: Space) -> list[WriteCommand]:
        """Those of `commands` that bring messages for which there is no room now."""
        if self.condition.is_full:
            return [command for command in commands if command.grows]
        size = sum([command.size for command in commands if command.grows])
        if not size:
            return []
        size += size // 16 + _GROUP_BYTES
        if size > self._left or self._clock.monotonic_ms() >= self._believed_until_ms:
            self._measure(space)
            if self._left < self.shares.reserve // _FULL_SHARE:
                self._fill("what is left of it is kept for reading")
                return [command for command in commands if command.grows]
        if size <= self._left:
            self._left -= size
            return []
        return self._beyond(commands)

    def _beyond(self, commands: Sequence[WriteCommand]) -> list[WriteCommand]:
        """The commands that do not fit, each by itself: small ones behind a large one do not wait for it."""
        waiting = []
        self._left -= _GROUP_BYTES
        for command in commands:
            size = command.size + command.size // 16
            if command.grows and size > self._left:
                waiting.append(command)
            elif command.grows:
                self._left -= size
        return waiting

    def no_room(self) -> BridgeError:
        """The error that commands get in the end when they waited for room in vain."""
        return self.condition.error or self._disk_full("this is too much for what is left of it")

    def ran_out(self, cause: Exception, space: Space) -> bool:
        """Give the reserve up after a commit found no room, so that commands without messages can go on.

        Answers whether there was something to give up.
        """
        released = self._reserve.release()
        self._fill(str(cause))
        space.checkpoint()
        return released

    def look(self, space: Space) -> None:
        """Let messages be tried again where the log can be copied and all that is kept aside is there."""
        now_ms = self._clock.monotonic_ms()
        if not self.condition.is_full or now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + RETRY_MS
        if self._has_room(space):
            self.condition.on(Event.ROOM)

    def _has_room(self, space: Space) -> bool:
        if space.stuck is not None and not space.checkpoint():
            return False
        space.pressed = not (self._reserve.ensure() and space.ensure_log())
        if space.pressed:
            return False
        wanted = self.shares.reserve // _ROOM_SHARE
        self._measure(space)
        if self._left < wanted and space.checkpoint():
            self._measure(space)
        return self._left >= wanted

    def _measure(self, space: Space) -> None:
        space.ensure_log()  # where it is a new file
        free = free_bytes(self._path.parent) - self.shares.reserve // _MARGIN_SHARE
        self._left = space.room(free)
        self._believed_until_ms = self._clock.monotonic_ms() + RETRY_MS

    def _fill(self, why: str) -> None:
        self.condition.on(Event.NO_ROOM, self._disk_full(why))
        self._look_at_ms = self._clock.monotonic_ms() + RETRY_MS

    def _disk_full(self, why: str) -> DiskFull:
        return DiskFull(f"no room on the disk of the journal ({why})")

    def give_up(self) -> bool:
        """Give the reserve up; answers whether there was one."""
        return self._reserve.release()
