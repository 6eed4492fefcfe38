"""Checks that the transformers that bridges name are there, in this environment, and can be made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bridge.errors import TransformerRefused
from bridge.runtime.foreign_code import NotLoaded, load_within
from bridge.settings.model import Settings
from bridge.settings.problems import Finding
from bridge.transformers.loading import load


def check_transformers(settings: Settings) -> Iterator[Finding]:
    """The transformers that cannot be imported, called or made, each within its `call-timeout`. Imports their
    modules.
    """
    for index, bridge in enumerate(settings.bridges):
        if bridge.transformer:
            try:
                load_within(
                    f"transformer {bridge.transformer}",
                    partial(load, bridge.transformer, bridge.transformer_properties),
                    bridge.call_timeout_ms,
                    details=bridge.transformer_properties,
                )
            except (TransformerRefused, NotLoaded) as refused:
                yield Finding(("bridges", index, "transformer"), refused.detail)
