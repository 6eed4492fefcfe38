"""Topics that a bridge names outright and that do not exist: no failure, as they may be made later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import structlog

from bridge.errors import listed


@dataclass(slots=True)
class MissingTopics:
    """Logs a topic once when it is found missing, and once when it has appeared."""

    bridge: str
    #: Whether this lane logs them: the others see the same.
    logs: bool
    _missing: frozenset[str] = field(default_factory=frozenset)

    def look(self, missing: Collection[str]) -> None:
        """Take the topics that are missing now."""
        if not self.logs:
            return
        log = structlog.get_logger().bind(bridge=self.bridge)
        for topic in sorted(self._missing - set(missing)):
            log.info("topic-found", topic=topic)
        for topic in sorted(set(missing) - self._missing):
            log.warning("topic-missing", topic=topic)
        self._missing = frozenset(missing)

    @property
    def reported(self) -> list[str]:
        """The topics that are missing now, as one text; none where none is."""
        return [f"there is no topic {listed(sorted(self._missing))} (queue-name)"] if self._missing else []
