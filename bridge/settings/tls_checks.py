"""Checks the files of certificates, keys and authorities that the settings name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.runtime.logs import timestamp
from bridge.runtime.tls import Role, TlsFiles, expiries, problems
from bridge.settings.listeners import Acceptor
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding

ACCEPTOR_KEYS: Final[Mapping[Role, str]] = {
    "authorities": "client-ca",
    "certificate": "certificate",
    "key": "key",
}


def acceptor_files(acceptor: Acceptor) -> TlsFiles | None:
    """The TLS files of `[acceptor]`; None where it serves no TLS."""
    if acceptor.endpoint.scheme != "wss":
        return None
    return TlsFiles(acceptor.certificate, acceptor.key, acceptor.client_ca, server=True)


def check_tls_files(settings: Settings) -> Iterator[Finding]:
    """Findings about every file that is not usable for its setting."""
    if settings.acceptor is not None:
        yield from _findings(("acceptor",), acceptor_files(settings.acceptor), ACCEPTOR_KEYS)
    for name, connector in settings.connectors.items():
        for table in connector.end_rules.tls(connector):
            yield from _findings(("connectors", name, *table.path), table.files, table.keys)


def check_expiries(settings: Settings, now_s: float) -> Iterator[Finding]:
    """Findings about certificates that have expired at `now_s`, in seconds since the epoch."""
    for path, expires_s in certificate_expiries(settings):
        if expires_s <= now_s:
            yield Finding(path, f"must be valid: it expired at {timestamp(expires_s)}")


def certificate_expiries(settings: Settings) -> Iterator[tuple[KeyPath, float]]:
    """When each certificate that the settings name expires, in seconds since the epoch, by its key."""
    if settings.acceptor is not None and (files := acceptor_files(settings.acceptor)) is not None:
        for role, expires_s in expiries(files):
            yield ("acceptor", ACCEPTOR_KEYS[role]), expires_s
    for name, connector in settings.connectors.items():
        for table in connector.end_rules.tls(connector):
            for role, expires_s in expiries(table.files):
                yield ("connectors", name, *table.path, table.keys[role]), expires_s


def _findings(path: KeyPath, files: TlsFiles | None, keys: Mapping[Role, str]) -> Iterator[Finding]:
    for role, rule in problems(files) if files is not None else ():
        pair = ((*path, keys["certificate"]), (*path, keys["key"])) if role == "key" else ()
        yield Finding((*path, keys[role]), rule, leans_on=((*path, "url"), *pair))
