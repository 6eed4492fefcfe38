"""Logs: one event a line on stderr, for people on a terminal, as JSON everywhere else.

Keys are those of the contract: ``timestamp`` (RFC 3339, UTC, ms), ``level``, ``event``, ``node``, ``bridge``
where there is one, ``worker`` in a worker process, then the event's own. Events have stable names in
kebab-case; a caller's keyword ``retry_in_ms`` is written as ``retry-in-ms``. Log or raise, never both.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import FilteringBoundLogger as Logger
from structlog.typing import Processor

from bridge.runtime.log_output import LogOutput, output_of
from bridge.runtime.secret_values import HIDDEN, is_secret, without_secrets

__all__ = ["Level", "LogFormat", "Logger", "Tally", "configure", "get", "rate_limited", "timestamp"]

Level = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]

#: Frequent events, such as `duplicate-rejected`, are logged at most once in this time.
RATE_LIMIT_S: Final = 1.0
#: The event that says how many lines were dropped while the log's reader stood still.
DROPPED_EVENT: Final = "log-lines-dropped"
#: The event of a library's line.
LIBRARY_EVENT: Final = "library"
#: A library's line with the same text is written once in this time...
LIBRARY_REPEAT_S: Final = 60.0
#: ...where it is one of this many texts that were written last.
LIBRARY_TEXTS: Final = 100

_LEVELS: Final[Mapping[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_FIRST_KEYS: Final = ("timestamp", "level", "event", "node", "bridge", "worker")

_Event = MutableMapping[str, Any]


def configure(
    level: Level,
    format: LogFormat,  # noqa: A002
    node: str,
    stream: TextIO | None = None,
    *,
    worker: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Set up logging for this process; may be called again; the last call takes effect.

    Lines that libraries log through the standard library's `logging` are written the same way, from warnings
    on, as the event ``library``.

    Args:
        level: the least urgent that is written.
        format: ``auto`` is ``console`` where `stream` is a terminal, else ``json``.
        node: this node's name; a key of every line.
        stream: the output; None: stderr as it is now, which holds no caller however slow its reader is.
        worker: this process's number, where it is a worker; a key of every line.
        clock: seconds, for lines that repeat.
    """
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    console = format == "console" or (format == "auto" and terminal)
    colors = terminal and not os.environ.get("NO_COLOR")
    processors: tuple[Processor, ...] = (
        _fixed_keys({"node": node} if worker is None else {"node": node, "worker": worker}),
        structlog.processors.format_exc_info,
        _hide_secrets,
        _console(colors) if console else _as_json,
    )
    output = output_of(stream, lambda count: _rendered(processors, "warning", DROPPED_EVENT, count=count))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Lines(output),
        cache_logger_on_first_use=False,  # loggers made before this call follow it
    )
    libraries = _Libraries(output, max(logging.WARNING, _LEVELS[level]), clock)
    libraries.setFormatter(ProcessorFormatter(foreign_pre_chain=(_library_event,), processors=processors))
    root = logging.getLogger()
    for before in [handler for handler in root.handlers if isinstance(handler, _Libraries)]:
        root.removeHandler(before)
    root.addHandler(libraries)


def get(*, bridge: str | None = None) -> Logger:
    """A logger; with `bridge`, every line names it."""
    if bridge is None:
        return cast("Logger", structlog.get_logger())
    return cast("Logger", structlog.get_logger(bridge=bridge))


class Tally:
    """Counts frequent events and logs the sum, at most once in `interval_s`.

    The first is logged at once. Events within the interval are summed, and logged when it ends: by the timer
    that `later` sets, else by the next `add` or by `flush`. For one thread only.
    """

    def __init__(
        self,
        log: Logger,
        event: str,
        *,
        interval_s: float = RATE_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        level: Level = "info",
    ) -> None:
        """`clock` gives seconds; `later` is an event loop's ``call_later``, or None."""
        self._log = log
        self._event = event
        self._interval_s = interval_s
        self._clock = clock
        self._later = later
        self._level = _LEVELS[level]
        self._count = 0
        #: The keys of the last event that was added.
        self._keys: Mapping[str, Any] = {}
        self._quiet_until = float("-inf")
        self._timer_set = False

    def add(self, count: int = 1, **keys: Any) -> None:
        """Add `count` events; the line has the keys of the last."""
        self._count += count
        self._keys = keys
        now = self._clock()
        if now >= self._quiet_until:
            self._emit(now)
        elif self._later is not None and not self._timer_set:
            self._timer_set = True
            self._later(self._quiet_until - now, self._on_timer)

    def flush(self) -> None:
        """Log the events that are not logged yet: at a stop, whatever the interval."""
        self._emit(self._clock())

    def _on_timer(self) -> None:
        self._timer_set = False
        self._emit(self._clock())

    def _emit(self, now: float) -> None:
        if not self._count:
            return
        count, self._count = self._count, 0
        self._quiet_until = now + self._interval_s
        self._log.log(self._level, self._event, count=count, **self._keys)


def rate_limited(
    event: str,
    *,
    bridge: str | None = None,
    later: Callable[[float, Callable[[], None]], object] | None = None,
    level: Level = "info",
) -> Tally:
    """A tally of `event` for one bridge: ``rate_limited("duplicate-rejected", bridge=name).add(3)``."""
    return Tally(get(bridge=bridge), event, later=later, level=level)


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds: ``2013-01-01T05:17:00.000Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _rendered(processors: Sequence[Processor], level: Level, event: str, **keys: Any) -> str:
    """The line of an event that no logger writes."""
    line: Any = {"event": event, **keys}
    for processor in processors:
        line = processor(None, level, line)
    return cast("str", line)


def _fixed_keys(own: Mapping[str, Any]) -> Callable[[Any, str, _Event], _Event]:
    def add(_: object, method: str, event: _Event) -> _Event:
        named = {key.replace("_", "-") if key != "exc_info" else key: value for key, value in event.items()}
        named = {**own, **named, "timestamp": timestamp(time.time()), "level": method, "node": own["node"]}
        if named.get("bridge") is None:
            named.pop("bridge", None)
        first = {key: named.pop(key) for key in _FIRST_KEYS if key in named}
        return first | named

    return add


def _hide_secrets(_: object, __: str, event: _Event) -> _Event:
    return {key: _hidden(key, value) for key, value in event.items()}


def _hidden(key: str, value: Any) -> Any:
    """`value` with every secret hidden, however deep it lies."""
    if is_secret(key):
        return HIDDEN if value else value
    match value:
        case Mapping():
            return {str(inner): _hidden(str(inner), item) for inner, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_hidden("", item) for item in value]
        case Enum():
            return value.value
        case None | bool() | int() | float():
            return value
        case _:
            text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
            return without_secrets(text)


def _as_json(_: object, __: str, event: _Event) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _console(colors: bool) -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(
        colors=colors, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )


class _Lines:
    """What structlog writes a finished line with."""

    def __init__(self, output: LogOutput) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = output.write


class _Libraries(logging.Handler):
    """Writes the lines of libraries: the same text once in `LIBRARY_REPEAT_S`.

    A client that cannot connect logs it at each attempt, of which there may be several a second. An exception
    is always written.
    """

    def __init__(self, output: LogOutput, level: int, clock: Callable[[], float]) -> None:
        super().__init__(level)
        self._output = output
        self._clock = clock
        #: By logger and text, the one written last at the end: when that was, and how often it came since.
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, now_s = record.getMessage(), self._clock()
        said = record.name, text
        written_s, kept_back = self._said.get(said, (-LIBRARY_REPEAT_S, 0))
        if now_s - written_s < LIBRARY_REPEAT_S and record.exc_info is None:
            self._said[said] = written_s, kept_back + 1
            return
        self._said.pop(said, None)
        self._said[said] = now_s, 0
        if len(self._said) > LIBRARY_TEXTS:
            del self._said[next(iter(self._said))]
        level = "ERROR" if record.levelno >= logging.ERROR else "WARNING"
        shown = logging.makeLogRecord({**record.__dict__, "levelname": level, "repeated": kept_back})
        self._output.write(self.format(shown))


def _library_event(_: object, __: str, event: _Event) -> _Event:
    """A library's record, as structlog's formatter gives it, with the keys of the node's own events."""
    record = event["_record"]
    library = {"event": LIBRARY_EVENT, "logger": record.name, "message": event["event"]}
    repeated = {"repeated": record.repeated} if record.repeated else {}
    return {**library, "exc_info": event.get("exc_info"), **repeated}
