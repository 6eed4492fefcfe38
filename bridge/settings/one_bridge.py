"""One bridge that comes without a file: held to the model, and to its rules with the settings of a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.runtime.secret_values import HIDDEN, is_secret
from bridge.settings.checks import check
from bridge.settings.model import Settings
from bridge.settings.paths import look_up, render
from bridge.settings.problems import Finding, Problem, SettingsInvalid, show
from bridge.settings.transformer_checks import check_transformers
from bridge.settings.validation import Validation


def with_bridge(settings: Settings, name: str, keys: Mapping[str, Any]) -> Settings:
    """The settings with this bridge, in place of the one of its name; places in text are not filled in.

    Its transformer is imported and made.

    Raises:
        SettingsInvalid: with all problems of its values, or else with all that it has with other settings.
    """
    written = {"name": name, **keys}
    others = tuple(bridge for bridge in settings.bridges if bridge.name != name)
    validation = Validation({"node": {"name": settings.node.name}, "bridges": [written]}, Path())
    alone = validation.settings()
    if written["name"] != name:
        validation.report([Finding(("bridges", 0, "name"), f"must be the name that is called, {show(name)}")])
    if alone is None or validation.findings:
        raise SettingsInvalid([_problem(name, 0, written, finding) for finding in validation.findings])
    whole = settings.model_copy(update={"bridges": (*others, *alone.bridges)})
    findings = [*check(whole), *check_transformers(alone)]
    if findings:
        raise SettingsInvalid([_problem(name, len(others), written, finding) for finding in findings])
    return whole


def without_bridge(settings: Settings, name: str) -> Settings:
    """The settings without the bridge of this name."""
    return settings.model_copy(
        update={"bridges": tuple(bridge for bridge in settings.bridges if bridge.name != name)}
    )


def _problem(name: str, index: int, written: Mapping[str, Any], finding: Finding) -> Problem:
    """The finding as the caller sees it, by the key that it sent; `index`: of the bridge in the path."""
    of = f"bridge {name}"
    if finding.path[:2] != ("bridges", index):  # another bridge, whose rule this one breaks
        return Problem(of, render(finding.path), finding.rule, finding.found or show(name))
    path = finding.path[2:]
    there, value = look_up(written, path)
    found = finding.found or show(value if there else None)
    if there and value and is_secret(str(path[-1])):
        found = HIDDEN
    return Problem(of, render(path), finding.rule, found, finding.suggestion)
