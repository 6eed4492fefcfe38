"""Transformers for tests, imported by nodes as `tests.harness.transformers`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from bridge.transformers import Message, NotNow
from tests.harness.eventually import PATIENCE_S


def change_all(message: Message, properties: Mapping[str, Any]) -> Message:
    """Changes body, key and headers, and says which ID it saw."""
    message.body = b"new " + (message.body or b"")
    message.key = b"key"
    message.set_header("colour", str(properties.get("colour", "")).encode())
    message.set_header("seen-id", message.duplicate_id)
    message.remove_header("old")
    return message


def stamp(message: Message, properties: Mapping[str, Any]) -> Message:
    """Stands for Artemis's Stamp.java."""
    message.set_header("mark", str(properties["mark"]).encode())
    return message


def write_id(message: Message, _properties: Mapping[str, Any]) -> Message:
    """Gives all messages one ID, where it can."""
    message.headers = [("_AMQ_DUPL_ID", b"same"), ("_HQ_DUPL_ID", b"other"), ("core-bridge-hops", b"x")]
    return message


class ByBody:
    """Does what a message's body says: ``raise``, ``drop``, ``twice`` (raises two times), ``wait`` (until
    `file` is there), ``down`` (NotNow until `file` is there), ``exit``.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._file = Path(str(properties.get("file", "")))
        self._log = str(properties.get("log", ""))
        self._raised = 0

    def __call__(self, message: Message) -> Message | None:
        """The message behind ``made``, unless its body says something else."""
        word = (message.body or b"").decode().partition(" ")[0]
        if self._log:
            with Path(self._log).open("a", encoding="utf-8") as log:
                print(word, os.getpid(), id(self), file=log)
        match word:
            case "raise":
                raise ValueError("not this one")
            case "exit":
                raise SystemExit(3)
            case "drop":
                return None
            case "twice" if self._raised < 2:
                self._raised += 1
                raise ValueError("not yet")
            case "wait":
                while not self._file.exists():
                    time.sleep(0.01)
            case "down" if not self._file.exists():
                raise NotNow("the rates are down")
        message.body = b"made " + (message.body or b"")
        return message


class ByNumber:
    """Does what the last digit of a message's body says: 3 is dropped, 5 raises, 7 and 9 are not taken at the
    first call of a process: it raises, or the message has to wait.
    """

    def __init__(self, _properties: Mapping[str, Any]) -> None:
        self._seen: set[bytes] = set()

    def __call__(self, message: Message) -> Message | None:
        """The message, ``made`` behind its body, unless its number says something else."""
        body = message.body or b""
        is_new = body not in self._seen
        self._seen.add(body)
        match body[-1:]:
            case b"3":
                return None
            case b"5":
                raise ValueError("not this one")
            case b"7" if is_new:
                raise ValueError("not yet")
            case b"9" if is_new:
                raise NotNow("not yet")
        message.body = body + b" made"
        return message


class Together:
    """Goes on with a body that begins with ``together`` once `calls` of them are inside at the same time, and
    writes a line for each call to `log`: process, key, body.
    """

    _inside: ClassVar[threading.Barrier | None] = None

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._log = Path(str(properties["log"]))
        Together._inside = Together._inside or threading.Barrier(int(properties["calls"]))

    def __call__(self, message: Message) -> Message:
        """The message, ``made`` before its body."""
        body = (message.body or b"").decode()
        with self._log.open("a", encoding="utf-8") as log:
            print(os.getpid(), (message.key or b"").decode(), body, sep="|", file=log)
        if body.startswith("together") and self._inside is not None:
            self._inside.wait(PATIENCE_S)
        message.body = f"made {body}".encode()
        return message


class LeavesThread:
    """Its constructor starts a thread that never ends, and that the end of Python waits for."""

    def __init__(self, _properties: Mapping[str, Any]) -> None:
        threading.Thread(target=threading.Event().wait, name="left-behind", daemon=False).start()

    def __call__(self, message: Message) -> Message:
        """The message."""
        return message


class NeverReturns:
    """Its constructor returns once `file` is there, or at once without one; it makes `begun` before."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        if "begun" in properties:
            Path(str(properties["begun"])).touch()
        while properties.get("file") and not Path(str(properties["file"])).exists():
            time.sleep(0.01)

    def __call__(self, message: Message) -> Message:
        """The message."""
        return message


class NeverMade:
    """Its constructor raises."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        raise ValueError(f"no {properties.get('what', 'nothing')}")

    def __call__(self, message: Message) -> Message:
        """The message."""
        return message


#: The names of the classes below that were made.
MADE: list[str] = []


class _NotesMaking:
    """Writes to `MADE` that it was made."""

    def __init__(self, *_: object) -> None:
        MADE.append(type(self).__name__)


class TakesNothing(_NotesMaking):
    """A class that takes no properties."""

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, message: Message) -> Message:
        """The message."""
        return message


class TakesNoMessage(_NotesMaking):
    """A class whose objects take no message."""

    def __call__(self) -> None:
        """Nothing."""


class TakesLater(_NotesMaking):
    """A class whose objects are coroutine functions."""

    async def __call__(self, message: Message) -> Message:
        """The message, to what no thread waits for."""
        return message


not_callable = 5


async def coroutine(message: Message, _properties: Mapping[str, Any]) -> Message:
    """What no thread can call."""
    return message


def takes_one(message: Message) -> Message:
    """A function that takes no properties."""
    return message
