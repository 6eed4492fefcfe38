"""The structure of the model: its tables, their keys, and the table that a path leads to."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath


def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a table by their key in the file, in the model's order."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def table_of(field: FieldInfo) -> tuple[type[BaseModel] | None, type | None]:
    """The table that a field holds, None for a plain value; and dict or tuple where it holds many."""
    annotation: Any = field.annotation
    origin = get_origin(annotation)
    inner = get_args(annotation) if origin in (Union, UnionType, tuple, dict) else (annotation,)
    tables = [item for item in inner if isinstance(item, type) and issubclass(item, BaseModel)]
    return (tables[0] if tables else None), (origin if origin in (tuple, dict) else None)


def known_keys(path: KeyPath) -> list[str]:
    """The keys that the table at `path` may have; empty where there is no such table."""
    model: type[BaseModel] | None = Settings
    many: type | None = None
    for step in path:
        if many is not None:  # this step is a name or an index
            many = None
            continue
        field = keys(model).get(str(step)) if model is not None else None
        if field is None:
            return []
        model, many = table_of(field)
    return list(keys(model)) if model is not None and many is None else []
