"""The access of an audit's tasks to an end: a function that Spark's workers import by name.

It reads the settings itself, wherever it runs: the file, its ``${VAR}`` and ``${file:}`` places and the
certificates must be there on every machine, and no secret travels in a job.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from bridge.end_kind import kind_of
from bridge.errors import BridgeError, Malformed, NotFound
from bridge.settings import load
from bridge.settings.model import Settings
from dedup.reconcile.audit.errors import ReadFailed
from dedup.reconcile.audit.plan import Access

END: Final = "bridge.audit.access:end"


def access(settings: Settings, path: Path, connector: str, bridge: str = "") -> Access:
    """The access of a task to the end of a connector of the settings at `path`.

    `bridge`: only records that the filter of this bridge takes count; empty: all of them do.

    Raises: Malformed: an audit cannot read it.
    """
    reader = kind_of(settings, connector).audit_reader
    if reader is None:
        raise Malformed(
            f"an audit cannot read what connector {connector} leads to", key="connector", found=connector
        )
    return Access(END, str(path.absolute()), connector, reader, bridge)


def end(settings: str, connector: str, bridge: str = "") -> Any:
    """The end of a connector, or of ``journal``, for the audit's reader; `bridge` as in `access`.

    Raises: ReadFailed: the settings, or a certificate, are of no use here.
    """
    try:
        found = _settings(settings, connector)
        filtering = next((one for one in found.bridges if one.name == bridge), None)
        if bridge and filtering is None:
            raise NotFound(f"{settings}: no bridge {bridge}", key="bridges", found=bridge)
        return kind_of(found, connector).audited(found, connector, filtering)
    except BridgeError as error:  # as a task reports it: in one line
        raise ReadFailed(f"connector {connector}: {'; '.join(str(error).splitlines())}") from error


def _settings(path: str, connector: str) -> Settings:
    """The settings file at the path on this machine. Raises: SettingsInvalid, NotFound: another file."""
    found = load(Path(path), os.environ)
    if not found.has_end(connector):
        raise NotFound(f"{path}: no connector of this name", key="connectors", found=connector)
    return found
