"""Units that wait for room: decided again when some may have come, refused when their time is up."""

from __future__ import annotations

from bridge.clock import Clock
from bridge.errors import BridgeError
from bridge.journal.group import StreamKey
from bridge.journal.options import RETRY_MS
from bridge.journal.units import DeliverUnit, Unit


class Holding:
    """Oldest first. Owned by the writer's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._units: list[tuple[Unit, BridgeError]] = []
        self._due_ms = 0

    def add(self, unit: Unit, error: BridgeError) -> bool:
        """Hold `unit`, which gets `error` in the end; False where its time is up."""
        now_ms = self._clock.monotonic_ms()
        if not unit.patient and (unit.deadline_ms is None or now_ms >= unit.deadline_ms):
            return False
        if not self._units:
            self._due_ms = now_ms + RETRY_MS
        if unit.deadline_ms is not None:
            self._due_ms = min(self._due_ms, unit.deadline_ms)
        self._units.append((unit, error))
        return True

    def take(self, *, room_came: bool) -> list[Unit]:
        """All of them where it is worth deciding them again, none otherwise."""
        if not room_came and self._clock.monotonic_ms() < self._due_ms:
            return []
        units = [unit for unit, _ in self._units]
        self._units = []
        return units

    @property
    def idle_seconds(self) -> float | None:
        """Until they are to be decided again; None: there are none."""
        if not self._units:
            return None
        return max(self._due_ms - self._clock.monotonic_ms(), 0) / 1000

    @property
    def streams(self) -> dict[StreamKey, BridgeError]:
        """Streams with a batch here, and why the first of it waits."""
        waiting: dict[StreamKey, BridgeError] = {}
        for unit, error in self._units:
            if isinstance(unit, DeliverUnit):
                waiting.setdefault((unit.bridge, unit.batch.stream), error)
        return waiting
