"""Messages that a source no longer has and a bridge passes over (`gap-policy`): counted and logged, once."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog


@dataclass(slots=True)
class Gaps:
    """The gaps of one bridge since the node started."""

    bridge: str
    #: Positions passed over. In a journal, whose positions all addresses share, the messages are fewer.
    positions: int = 0
    _upto: dict[str, int] = field(default_factory=dict)

    def passed(self, stream: str, first: int, end: int) -> None:
        """Count positions ``[first, end)`` of a stream as gone; those counted before are not counted
        again.
        """
        first = max(first, self._upto.get(stream, 0))
        if first >= end:
            return
        self._upto[stream] = end
        self.positions += end - first
        structlog.get_logger().warning(
            "source-gap", bridge=self.bridge, stream=stream, first=first, end=end, positions=end - first
        )
