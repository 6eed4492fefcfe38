"""Finds a transformer by its dotted path, in this process's own environment."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from bridge.errors import TransformerRefused, text_of
from bridge.transformers.message import Message

#: A transformer with its properties, ready to be called; None: the message is dropped.
Call = Callable[[Message], Message | None]

_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
#: Characters of an error's text that are shown: of a transformer's error, too, which may quote a message.
ERROR_CHARS_MOST: Final = 500


def check_path(path: str) -> str:
    """Returns `path`. Raises: ValueError: it has another form than ``dotted.path:callable``."""
    if not _PATH.fullmatch(path):
        raise ValueError('must be dotted.path:callable, as in "shop.messages:in_euros"')
    return path


def load(path: str, properties: Mapping[str, Any]) -> Call:
    """The transformer at `path`, a class made with the properties, or a function that gets them at each call.

    Raises: TransformerRefused: it cannot be imported here, called, or made.
    """
    module_name, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:
        raise TransformerRefused(f"cannot be imported here: {told(error)}", key="transformer") from error
    for name in names.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            detail = f"must name a callable; {module_name} has no {names}"
            raise TransformerRefused(detail, key="transformer", found=path) from None
    given = dict(properties)
    if isinstance(found, type):
        made: Any = found
        _check_makes_calls(made, given)
        try:
            found = made(given)
        except BaseException as error:
            detail = f"cannot be made with its properties: {told(error)}"
            raise TransformerRefused(detail, key="transformer", found=path) from error
        _check_takes(found, "a message", Message(None))
        call: Call = found
        return call
    _check_takes(found, "a message and the properties", Message(None), given)
    return partial(_with_properties, found, given)


def _with_properties(function: Callable[..., Message | None], given: Any, message: Message) -> Message | None:
    return function(message, given)


def _check_makes_calls(made: type, given: Mapping[str, Any]) -> None:
    """Check a class before it is made, as making it runs its code: its objects are to take a message.

    Raises: TransformerRefused.
    """
    call = next((vars(base)["__call__"] for base in made.__mro__ if "__call__" in vars(base)), None)
    if call is None:
        detail = f"must be a class whose objects are callable; {made.__qualname__} has no __call__"
        raise TransformerRefused(detail, key="transformer")
    _check_takes(made, "the properties", given)
    if inspect.isfunction(call):
        _check_takes(call, "a message", None, Message(None))


def _check_takes(found: Any, what: str, *arguments: Any) -> None:
    """Check that it can be called with these arguments. Raises: TransformerRefused."""
    if not callable(found):
        raise TransformerRefused(f"must be callable; it is of type {type(found).__name__}", key="transformer")
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__):
        raise TransformerRefused("must not be a coroutine function: a thread calls it", key="transformer")
    try:
        signature = inspect.signature(found)
    except Exception:  # noqa: BLE001 - of some callables in C it is not known; others run foreign code
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TransformerRefused(f"must take {what}: {text_of(error)}", key="transformer") from None


def told(error: BaseException) -> str:
    """The error in a line: its class and text, shortened."""
    text = " ".join(text_of(error).split())
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return shown if len(shown) <= ERROR_CHARS_MOST else f"{shown[:ERROR_CHARS_MOST]}..."
