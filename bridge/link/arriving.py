"""The frames of one link as their bytes come in: their part of `LinkRoom`, and whether to read on. Pure.

A frame counts with its whole length from its WebSocket header (RFC 6455, section 5.2) on, because a frame
that has begun must be able to end: what is counted is never waited for. If bytes counted as they come, many
slow links would fill the room in the middle of their frames, and would have to end them one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bridge.link.room import LinkRoom

_FINAL: Final = 0x80
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_OPCODE: Final = 0x0F
#: Opcodes from here on are control frames: of 125 bytes at most, and no part of a message.
_CONTROL: Final = 0x8
#: The first byte of a binary message in one frame.
_WHOLE: Final = 0x82
#: Values of the header's length that say how many bytes of it have the length; the least of them.
_WIDE: Final = {126: 2, 127: 8}
_WIDE_LEAST: Final = 126


class Arriving:
    """One link's part of `LinkRoom`: frames from their header on, until the link's machine has them.

    Where the room is full when a frame begins, or has come, the link is held: its connection is not read
    until the room admits it. A frame that came whole with its header is counted at once.
    """

    __slots__ = ("_fragments", "_head", "_largest", "_left", "_room", "_wanted", "counted", "held", "wake")

    def __init__(self, room: LinkRoom, largest: int) -> None:
        """`largest`: the largest frame that this end takes, bytes."""
        self._room = room
        self._largest = largest
        #: Called when the link is held no more.
        self.wake: Callable[[], None] = lambda: None
        #: Whether the connection is not to be read.
        self.held = False
        #: Bytes that count in the room; and those that are to count once it admits the link.
        self.counted = 0
        self._wanted = 0
        #: Bytes of the current WebSocket frame that have not come.
        self._left = 0
        #: The beginning of a header that has not come whole.
        self._head = b""
        #: Bytes of a message's fragments, the last of which has not come; None: no message is in fragments.
        self._fragments: int | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether a frame has begun that has not come whole."""
        return self._left > 0

    def add(self, data: bytes) -> bool:
        """Count bytes that have come, in order. Returns `held`."""
        if len(data) < self._left:
            self._left -= len(data)
            return self.held
        if self._left and self._wanted:  # it came whole although the link is held
            self._count_wanted()
        if self._head:
            data = self._head + data
        self._walk(data, self._left)
        if self.held or not (self._wanted or self._room.is_full):
            return self.held
        if self._wanted or (not self._left and self._fragments is None):
            self.held = True
            self._room.wait(self)
        return self.held

    def _walk(self, data: bytes, at: int) -> None:
        """Count each frame whose header is in these bytes; the first begins at `at`."""
        size = len(data)
        while size - at >= 2:
            second = data[at + 1]
            length = second & _LENGTH
            begin = at + (6 if second & _MASKED else 2)
            if length >= _WIDE_LEAST:
                wide = _WIDE[length]
                begin += wide
                length = int.from_bytes(data[at + 2 : at + 2 + wide])
            if begin > size:
                break
            whole = begin + length <= size
            first = data[at]
            if whole and first == _WHOLE and length <= self._largest:  # most are
                self.counted += length
                self._room.buffered += length
            elif first & _OPCODE < _CONTROL:
                self._begin(length, final=bool(first & _FINAL), whole=whole)
            if not whole:
                self._left, self._head = begin + length - size, b""
                return
            at = begin + length
        self._left, self._head = 0, data[at:]

    def _begin(self, length: int, *, final: bool, whole: bool) -> None:
        """Count a frame with so many bytes. Of a message in fragments the first counts as the largest
        frame: how many follow is not known.
        """
        if self._fragments is None:
            size = min(length, self._largest) if final else self._largest
            self._wanted = size
            if (whole and final) or not self._room.is_full:
                self._count_wanted()
            self._fragments = None if final else length
            return
        self._fragments += length
        if not final:
            return
        size, self._fragments = min(self._fragments, self._largest), None
        if self._wanted:
            self._wanted = size
            if whole:
                self._count_wanted()
        else:
            self.counted -= self._largest - size
            self._room.give(self._largest - size)

    def taken(self, size: int) -> bool:
        """Release a message of so many bytes: the machine has it.

        False: so many have not come, as far as is known. Bytes came before they were counted.
        """
        released = min(size, self.counted)
        self.counted -= released
        self._room.give(released)
        return released == size

    def admit(self) -> None:
        """Read on: called by the room, in the link's turn."""
        self.held = False
        self._count_wanted()
        self.wake()

    def _count_wanted(self) -> None:
        wanted, self._wanted = self._wanted, 0
        self.counted += wanted
        self._room.take(wanted)

    def end(self) -> None:
        """Release everything: the link has ended."""
        self.held = False
        self._room.leave(self)
        released, self.counted, self._wanted = self.counted, 0, 0
        self._room.give(released)
