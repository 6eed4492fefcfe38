"""Finds the node that a command talks to: by the command line, then the environment, then the settings file.

Of the file only the table of the listener is read, so that a command needs none of the secrets of the others.
Without ``--settings`` the file of the working directory counts, unless a URL is given: its tokens go to no
other node unless both are named.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from bridge.cli.options import DEFAULT_OPERATIONS, DEFAULT_SETTINGS, DEFAULT_URL, named_settings
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import ClientError, Connection
from bridge.client.progress import warn

if TYPE_CHECKING:
    from bridge.settings.listeners import Acceptor, Operations

Table = Literal["acceptor", "operations"]

#: The local address for a listener on every address of the machine.
_LOCAL: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where others listen


def node_connection(arguments: argparse.Namespace) -> Connection:
    """The acceptor to talk to. Raises: SystemExit: wrong usage or settings, with a message printed."""
    return _connection(arguments, "acceptor", "--url", arguments.url, DEFAULT_URL)


def operations_connection(arguments: argparse.Namespace) -> Connection:
    """The operations listener to talk to. Raises: SystemExit, as `node_connection`."""
    return _connection(arguments, "operations", "--operations", arguments.operations, DEFAULT_OPERATIONS)


def liveness_connection(arguments: argparse.Namespace) -> tuple[Connection, str]:
    """A listener that answers while the process lives, and a path to ask it: operations, else the acceptor.

    Raises: SystemExit, as `node_connection`.
    """
    path = _file(arguments)
    if path is None or arguments.operations or _listener(path, "operations") is not None:
        return operations_connection(arguments), "/ping"
    return _connection(arguments, "acceptor", "--operations", None, DEFAULT_URL), "/v1/addresses"


def _connection(
    arguments: argparse.Namespace, table: Table, option: str, given: str | None, default: str
) -> Connection:
    path = _file(arguments)
    listener = None if path is None else _listener(path, table)
    if path is not None and not given:
        if listener is None:
            _refuse(f"{path}: [{table}] is absent: the node does not open it; give {option}")
        if listener.endpoint.port == 0:
            _refuse(f"{path}: {table}.url: with port 0 the file cannot tell which it is; give {option}")
    token = arguments.token or (listener.tokens[0] if listener is not None and listener.tokens else "")
    url = given or default
    own_certificate = ""
    if listener is not None and not given:
        url = _local_url(listener)
        own_certificate = str(getattr(listener, "certificate", None) or "")
    connection = Connection(
        url, token, arguments.ca, arguments.certificate, arguments.key, own_certificate=own_certificate
    )
    try:
        _ = connection.base, connection.tls()
    except ClientError as error:
        _refuse(f"{error.key or option}: {error}")
    return connection


def _file(arguments: argparse.Namespace) -> Path | None:
    """The settings file to read; None: there is none, or the command line names the node."""
    named = named_settings(arguments)
    if named is not None:
        return named
    if getattr(arguments, "url", None) or getattr(arguments, "operations", None):
        return None
    return Path(DEFAULT_SETTINGS) if os.path.lexists(DEFAULT_SETTINGS) else None


def _listener(path: Path, table: Table) -> Acceptor | Operations | None:
    """One table of the file; None: it has none. Raises: SystemExit: the file is not valid."""
    from bridge.settings import SettingsInvalid, load  # late: not for commands that are told a URL

    try:
        settings = load(path, os.environ, only=table)
    except SettingsInvalid as invalid:
        _refuse("\n".join(invalid.lines()), prefix="")
    return settings.acceptor if table == "acceptor" else settings.operations


def _local_url(listener: Acceptor | Operations) -> str:
    """The listener's URL on this machine."""
    endpoint = listener.endpoint
    host = _LOCAL.get(endpoint.host, endpoint.host)
    return f"{endpoint.scheme}://{f'[{host}]' if ':' in host else host}:{endpoint.port}"


def _refuse(reason: str, prefix: str = f"{PROGRAM}: ") -> NoReturn:
    warn(f"{prefix}{reason}")
    raise SystemExit(Exit.USAGE)
