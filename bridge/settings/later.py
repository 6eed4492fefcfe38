"""Keys whose feature has not been built yet: refused by name where they have another value than their
default.

The change that builds a feature removes its rows here; nothing else has to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding


@dataclass(frozen=True, slots=True)
class Later:
    """A key that is in the model and not in the code."""

    #: From the top, with '*' for a table's name or a list's index.
    key: str
    #: In the plural: "filters".
    feature: str
    #: Says which values are built already; None: the default alone.
    built: Callable[[Any], bool] | None = None


LATER: Final[Sequence[Later]] = ()


def find_later(settings: Settings, table: Sequence[Later] = LATER) -> Iterator[Finding]:
    """Every key of `table` whose value asks for a feature that is not built yet."""
    for later in table:
        for path, value, default in _values(settings, later.key.split("."), ()):
            if not (value == default if later.built is None else later.built(value)):
                yield Finding(path, f"{later.feature} are not built yet")


def _values(value: Any, steps: list[str], path: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    """Path, value and default of each key that `steps` lead to."""
    step, *rest = steps
    if step == "*":
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if rest:
                yield from _values(item, rest, (*path, key))
            else:
                yield (*path, key), item, None
        return
    attribute = attribute_of(type(value), step)
    found = getattr(value, attribute)
    if rest:
        yield from _values(found, rest, (*path, step))
    else:
        default = type(value).model_fields[attribute].get_default(call_default_factory=True)
        yield (*path, step), found, default


def attribute_of(model: type[BaseModel], key: str) -> str:
    """The attribute that a key of the file becomes."""
    return next(name for name, field in model.model_fields.items() if field.alias == key)
