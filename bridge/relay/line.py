"""What the line to a target carries: the rate that it has shown, and how much is to be on its way. Pure.

The rate is that of delivery, as in BBR (Cardwell and others, 2016): the bytes that were confirmed while a
batch was on its way, over the time that it took; of the last samples the highest counts. A connection begins
with little on its way, and what is confirmed is added, so that it doubles each round trip. Each connection
that breaks with batches on their way halves the seconds that a batch may take: less is sent in vain.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

#: What keeps a bridge from sending more; empty: it has no connection.
Limit = Literal["", "source", "line", "window", "credit", "priority", "target"]
LIMITS: Final = ("source", "line", "window", "credit", "priority", "target")

KIB: Final = 1024

#: Seconds that a batch takes at the line's rate; two are on their way, beside what fills the line.
BATCH_S: Final = 0.5
#: Smallest limit of a batch, bytes; one message may be larger.
LEAST_BATCH: Final = 4 * KIB
#: Bytes on their way at first, while nothing is known of the line.
START: Final = 4 * LEAST_BATCH
#: The most of these when a later connection begins, whatever the last one carried.
RESTART: Final = 16 * LEAST_BATCH
#: What the last connection has shown counts for so long in the next one, seconds.
FORMER_S: Final = 3.0
#: A shorter round trip counts as so long: the target takes time to store what came. Seconds.
LEAST_ROUND_TRIP_S: Final = 0.25
#: So many times what fills the line is on its way, that a rate which has been shown may be exceeded: twice
#: on a good line, and this much on one that breaks.
LEAST_GAIN: Final = 1.5
#: A message that takes no longer than so many round trips does not wait for the receipt of the one before.
FAR_TRIPS: Final = 4
#: A sample of the rate holds for so long, seconds.
RATE_S: Final = 10.0
#: Samples closer together than this are one, seconds: so at most 20 are kept.
SAMPLE_S: Final = 0.5
#: A connection that holds for so long doubles again what breaks have halved, seconds.
GOOD_S: Final = 30.0
#: The least that breaks leave of a batch's time: after four in a row.
LEAST_SHARE: Final = 1 / 16
#: Times of reconnects that are kept, to count those within `LATELY_S` seconds.
RECONNECTS_MOST: Final = 3_600
LATELY_S: Final = 3_600.0
#: A shorter time counts as so long, seconds: clocks are no finer.
_LEAST_ELAPSED_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class LineStatus:
    """The line of a bridge as operators see it."""

    #: The shortest round trip that the connection has lately seen, ms; None: not measured.
    round_trip_ms: int | None
    #: Bytes a second that it has carried; 0: not known yet.
    rate: int
    #: Bytes on their way, and those that are to be.
    in_flight: int
    wanted: int
    #: What keeps the bridge from sending more: its source has no more, the line carries no more, the window
    #: or the target's credit is used up, a bridge with a higher priority sends, or the target takes none now.
    #: Empty: it has no connection.
    limit: Limit
    #: Times that it connected again within the last hour, `RECONNECTS_MOST` at most.
    reconnects: int

    def beside(self, other: LineStatus) -> LineStatus:
        """Both together, lanes of one bridge; the limit is the first's."""
        trips = [one for one in (self.round_trip_ms, other.round_trip_ms) if one is not None]
        return LineStatus(
            max(trips, default=None),
            self.rate + other.rate,
            self.in_flight + other.in_flight,
            self.wanted + other.wanted,
            self.limit or other.limit,
            self.reconnects + other.reconnects,
        )


class _Sent(NamedTuple):
    """A batch on its way."""

    size: int
    at_s: float
    #: Bytes that were confirmed when it was sent, and when the last of them was.
    delivered: int
    delivered_s: float


@dataclass(slots=True)
class Line:
    """The line of one lane, over all its connections. Times in seconds, by a clock that never goes back."""

    #: Largest batch, bytes (`producer-window-size`).
    batch_most: int
    #: The round trip that the target has measured; None: none has been.
    round_trip_s: float | None = None
    _sent: deque[_Sent] = field(default_factory=deque)
    _in_flight: int = 0
    #: Bytes confirmed so far, and when the last were.
    _delivered: int = 0
    _delivered_s: float = 0.0
    #: Up to so many of `_delivered` the line, or the window, held batches back.
    _held_upto: int = -1
    #: Samples of the rate with their times: later ones are lower.
    _rates: deque[tuple[float, float]] = field(default_factory=deque)
    #: The shortest time between a batch and its receipt on this connection.
    _least_elapsed_s: float | None = None
    #: Most bytes on their way; grows by what is confirmed.
    _cap: int = START
    #: Limit of a batch; doubles with each one that is confirmed. Not only with full ones: what a batch weighs
    #: beside its messages (places of origin, IDs) fills it, too, and is not counted here.
    _batch_cap: int = LEAST_BATCH
    #: The part of a batch's time that breaks have left.
    _share: float = 1.0
    #: When the connection began, or doubled the share.
    _good_since_s: float = 0.0
    #: When connections began that were not the first.
    _reconnected: deque[float] = field(default_factory=lambda: deque(maxlen=RECONNECTS_MOST))
    _connected_before: bool = False

    # -- what happens ------------------------------------------------------------------------------------

    def connected(self, now_s: float, *, sized: bool = True) -> None:
        """A connection begins: it may lead over another line than the last one.

        `sized`: batches can be made to fit. Where they cannot, two of the largest are on their way at first.
        """
        if self._connected_before:
            self._reconnected.append(now_s)
        self._connected_before = True
        former_wanted, former_rate = self.wanted, self.rate
        self._batch_cap = max(min(self.batch_bytes, RESTART // 4), LEAST_BATCH)
        self._rates.clear()
        if former_rate:
            self._rates.append((now_s - RATE_S + FORMER_S, former_rate))
        self.round_trip_s = self._least_elapsed_s = None
        self._held_upto = -1
        self._cap = max(min(former_wanted, RESTART), START if sized else 2 * self.batch_most)
        self._good_since_s = now_s

    def ended(self) -> None:
        """The connection has ended; where it broke with batches on their way, the next ones are smaller."""
        if self._sent:
            self._share = max(self._share / 2, LEAST_SHARE)
            self._sent.clear()
            self._in_flight = 0

    def sent(self, size: int, now_s: float) -> None:
        """A batch was sent."""
        if not self._sent:
            self._delivered_s = now_s
        self._sent.append(_Sent(size, now_s, self._delivered, self._delivered_s))
        self._in_flight += size

    def held(self) -> None:
        """A batch waits although the source has it: the rate shown now is all that there is."""
        self._held_upto = self._delivered + self._in_flight

    def answered(self, now_s: float, *, stored: bool = True) -> None:
        """The batch sent first was answered; one that was not stored may never have left."""
        one = self._sent.popleft()
        if not stored:
            self._in_flight -= one.size
            self._held_upto -= one.size
            return
        if self._in_flight >= self._cap // 2:
            self._cap = min(self._cap + one.size, max(4 * self.batch_most, 2 * self.wanted))
        if one.size:
            self._batch_cap = min(2 * self._batch_cap, max(self.batch_most, LEAST_BATCH))
        self._in_flight -= one.size
        self._delivered += one.size
        self._delivered_s = now_s
        elapsed_s = now_s - one.at_s
        if self._least_elapsed_s is None or elapsed_s < self._least_elapsed_s:
            self._least_elapsed_s = elapsed_s
        if one.size:
            shown = (self._delivered - one.delivered) / max(now_s - one.delivered_s, _LEAST_ELAPSED_S)
            self._add_rate(shown, now_s)
        if self._share < 1 and now_s - self._good_since_s >= GOOD_S:
            self._share *= 2
            self._good_since_s = now_s

    def _add_rate(self, rate: float, now_s: float) -> None:
        """Add a sample; one that the source has limited says only that the line carries as much."""
        rates = self._rates
        if self._delivered <= self._held_upto:
            while rates and rates[0][0] < now_s - RATE_S:
                rates.popleft()
        elif rates and rate < rates[0][1]:
            return
        while rates and rates[-1][1] <= rate:
            rates.pop()
        if not rates or now_s - rates[-1][0] >= SAMPLE_S:
            rates.append((now_s, rate))

    def reconnects(self, now_s: float) -> int:
        """Connections within `LATELY_S` that were not the first."""
        return sum(at_s > now_s - LATELY_S for at_s in self._reconnected)

    @property
    def in_flight(self) -> int:
        """Bytes on their way."""
        return self._in_flight

    # -- what follows ------------------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Bytes a second that the line has carried; 0: not known yet."""
        return self._rates[0][1] if self._rates else 0.0

    @property
    def batch_bytes(self) -> int:
        """The limit of a batch that is cut now."""
        most = self._batch_cap
        if self.rate:
            most = min(most, int(self.rate * BATCH_S * self._share))
        return min(max(most, LEAST_BATCH), self.batch_most)

    @property
    def wanted(self) -> int:
        """Bytes that are to be on their way: what fills the line, and two batches."""
        if not self.rate:
            return self._cap
        round_trip_s = max(self._known_round_trip_s, LEAST_ROUND_TRIP_S * self._share)
        fills = int(self.rate * round_trip_s * max(1 + self._share, LEAST_GAIN))
        return min(fills + 2 * self.batch_bytes, self._cap)

    @property
    def _known_round_trip_s(self) -> float:
        known_s = self._least_elapsed_s if self.round_trip_s is None else self.round_trip_s
        return known_s or 0.0

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes may be sent now; one may always where none is on its way.

        A message above the limit of a batch counts as a batch. A second one follows the first at once where
        the round trip is so long that waiting for the receipt would leave the line idle.
        """
        if not self._sent or self._in_flight + min(size, self.batch_bytes) <= self.wanted:
            return True
        idle_s = FAR_TRIPS * self._share * self._known_round_trip_s
        return len(self._sent) == 1 and size <= self.rate * idle_s and self._in_flight <= self.rate * idle_s
