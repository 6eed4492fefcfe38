"""Reads a settings file: TOML, `${}` places, the model, the rules between keys, and keys that are not built
yet.
"""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bridge.runtime.secret_values import HIDDEN, holds_secret, is_secret
from bridge.settings.checks import check, check_proxies
from bridge.settings.interpolate import Interpolated, interpolate
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath, covers, item_name, look_up, place_in_file, render
from bridge.settings.problems import Finding, Problem, SettingsInvalid, show
from bridge.settings.tls_checks import check_expiries, check_tls_files
from bridge.settings.toml_traps import toml_problem
from bridge.settings.transformer_checks import check_transformers
from bridge.settings.validation import Validation

#: Largest settings file, in bytes.
MAX_FILE_BYTES: Final = 1024 * 1024


def load(
    path: Path,
    environ: Mapping[str, str],
    *,
    only: str = "",
    transformers: bool = False,
    now_s: float | None = None,
) -> Settings:
    """The settings in the file at `path`, as `SettingsFile.settings` reads them.

    `only` names one table: the file is read as if it had no other, and no certificates and keys.

    Raises:
        SettingsInvalid: with all problems, in the order of the file.
    """
    return SettingsFile(path, environ, only=only).settings(
        tls_files=not only, transformers=transformers, now_s=now_s
    )


class SettingsFile:
    """A settings file, read once; the files that its ``${file:}`` places name are read at each call."""

    def __init__(
        self, path: Path, environ: Mapping[str, str], *, only: str = "", text: str | None = None
    ) -> None:
        """`environ` is for ``${VAR}`` places; `only` names the one table that is read; `text` is what another
        process has read in the file, which is not read again then.

        Raises:
            SettingsInvalid: the file is missing, or it is no TOML.
        """
        self.path: Final = path
        self._file = str(path)
        #: The content.
        self.text: Final = _decoded(self._file, _read(self._file, path)) if text is None else text
        tree = _parse(self._file, self.text)
        self._tree = {key: value for key, value in tree.items() if not only or key == only}
        self._directory = path.absolute().parent
        self._environ = environ

    def filled(self) -> Interpolated:
        """The content of the file, with every place filled in from the present value of its variable or
        file.
        """
        filled = interpolate(self._tree, self._environ, self._directory)
        _name_node(filled.tree)
        return filled

    def settings(
        self,
        filled: Interpolated | None = None,
        *,
        tls_files: bool = True,
        transformers: bool = False,
        now_s: float | None = None,
    ) -> Settings:
        """The settings, of `filled` or of the present `filled()`.

        Nothing is opened but the files of ``${file:}`` places and, where `tls_files`, certificates and keys
        to see that they fit. Where `transformers`, those that bridges name are imported and made. With
        `now_s`, seconds since the epoch, no certificate may have expired then. A start does not ask: a node
        whose certificate has expired still stores and relays.

        Raises:
            SettingsInvalid: with all problems, in the order of the file.
        """
        filled = filled or self.filled()
        validation = Validation(filled.tree, self._directory)
        validation.report(Finding(place, rule) for place, rule in filled.broken)
        for place, _ in filled.broken:
            validation.take_out(place)
        settings = _checked(validation, tls_files=tls_files, transformers=transformers, now_s=now_s)
        if settings is not None:
            validation.report(check_proxies(settings, self._environ))
        if settings is None or validation.findings:
            findings = sorted(
                validation.findings, key=lambda finding: place_in_file(self._tree, finding.path)
            )
            raise SettingsInvalid([_problem(self._file, finding, filled) for finding in findings])
        return settings


def find_problems(tree: Mapping[str, Any], directory: Path) -> Sequence[Finding]:
    """The findings in settings that are no file yet; places in text are not filled in."""
    validation = Validation({**tree}, directory)
    _checked(validation, tls_files=False)
    return validation.findings


def _checked(
    validation: Validation, *, tls_files: bool, transformers: bool = False, now_s: float | None = None
) -> Settings | None:
    """Report every problem; the settings with everything wrong taken out, None where there is too much."""
    settings = validation.settings()
    if settings is not None:
        validation.report(check(settings))
        validation.report(check_tls_files(settings) if tls_files else ())
        validation.report(() if now_s is None else check_expiries(settings, now_s))
        validation.report(check_transformers(settings) if transformers else ())
    return settings


def _read(file: str, path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        found = (error.strerror or type(error).__name__).lower()
        raise SettingsInvalid([Problem(file, "", "must be a file that can be read", found)]) from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsInvalid([Problem(file, "", f"must be at most {MAX_FILE_BYTES} bytes", "more")])
    return content


def _decoded(file: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        place, found = f"line {line}, column {column}", f"byte 0x{content[error.start]:02x}"
        raise SettingsInvalid([Problem(file, place, "must be UTF-8", found)]) from None


def _parse(file: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid([toml_problem(file, text, error)]) from None
    except RecursionError:
        raise SettingsInvalid(
            [Problem(file, "", "must not be nested as deep", "too many brackets")]
        ) from None


def _name_node(tree: dict[str, Any]) -> None:
    """Set `node.name` to the host's name where the file gives none."""
    node = tree.setdefault("node", {})
    if isinstance(node, dict):
        node.setdefault("name", socket.gethostname())


def _problem(file: str, finding: Finding, filled: Interpolated) -> Problem:
    path = finding.path
    name = item_name(filled.tree, path)
    key = f"{render(path)} ({name})" if name else render(path)
    written, value = look_up(filled.tree, path)
    found = finding.found or show(value if written else None)
    if written and value and not isinstance(value, dict) and _hidden(finding, value, filled.from_files):
        found = HIDDEN
    return Problem(file, key, finding.rule, found, finding.suggestion)


def _hidden(finding: Finding, value: object, from_files: set[KeyPath]) -> bool:
    words = [step for step in finding.path if isinstance(step, str)]
    return (
        (bool(words) and holds_secret(words[-1], str(value)))
        or (finding.suggestion is not None and is_secret(finding.suggestion))
        or any(covers(finding.path, place) for place in from_files)
    )
