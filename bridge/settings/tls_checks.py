"""Checks the files of certificates, keys and authorities that the settings name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.runtime.tls import Role, TlsFiles, problems
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


def _findings(path: KeyPath, files: TlsFiles | None, keys: Mapping[Role, str]) -> Iterator[Finding]:
    for role, rule in problems(files) if files is not None else ():
        pair = ((*path, keys["certificate"]), (*path, keys["key"])) if role == "key" else ()
        yield Finding((*path, keys[role]), rule, leans_on=((*path, "url"), *pair))
