"""TLS contexts made of PEM files: problems of the files, and reading them again when they change."""

from __future__ import annotations

import enum
import os
import ssl
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from bridge.runtime import certificates

#: The file that a problem or a setting is about.
Role = Literal["authorities", "certificate", "key"]

_CERTIFICATES: Final = "must be a PEM file of certificates"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one end's TLS."""

    #: Chain of this end's certificates, its own first; None: it shows none.
    certificate: Path | None = None
    #: Private key of `certificate`.
    key: Path | None = None
    #: Certificates to trust; None: the system's for a client, no client certificates for a server.
    authorities: Path | None = None
    #: Opens `key`; empty: the key is not encrypted.
    password: str = field(default="", repr=False)
    server: bool = False

    def signature(self) -> tuple[object, ...]:
        """Differs once a file was written or replaced; a missing file has one, too."""
        return tuple(map(_signature, (self.certificate, self.key, self.authorities)))

    def context(self) -> ssl.SSLContext:
        """A context of the files' present content. A password is never asked for on the terminal.

        Raises: OSError (ssl.SSLError is one): a file cannot be used; `problems` says which and why.
        """
        if self.server:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        else:
            context = ssl.create_default_context(cafile=self.authorities)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, lambda: self.password)
        if self.server and self.authorities is not None:
            context.load_verify_locations(self.authorities)
            # A token serves as well, so a certificate is asked for but not required.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def expiries(files: TlsFiles) -> Iterator[tuple[Role, float]]:
    """When the files stop to serve, in seconds since the epoch: the first of a chain, the last authority."""
    for role, path, serves_until in (
        ("certificate", files.certificate, min),
        ("authorities", files.authorities, max),
    ):
        if path is not None and (found := certificates.expiries(path)):
            yield cast("Role", role), serves_until(found)


def problems(files: TlsFiles) -> Iterator[tuple[Role, str]]:
    """The problems of the files: which one, and the rule that it breaks."""
    if files.authorities is not None and (reason := _no_certificates(files.authorities)):
        yield "authorities", f"{_CERTIFICATES} ({reason})"
    if files.certificate is None or files.key is None:
        return
    if reason := _no_certificates(files.certificate):
        yield "certificate", f"{_CERTIFICATES} ({reason})"
        return
    yield from _key_problems(files.certificate, files.key, files.password)


def _no_certificates(path: Path) -> str:
    """The reason why the file has no certificates; empty: it has some."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        return _reason(error)
    return "" if context.cert_store_stats()["x509"] else "it has none"


def _key_problems(certificate: Path, key: Path, password: str) -> Iterator[tuple[Role, str]]:
    asked: list[bool] = []

    def give() -> str:
        asked.append(True)
        return password

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, give)
    except OSError as error:
        reason = _reason(error)
        if reason == "KEY_VALUES_MISMATCH":
            yield "key", f"must be the private key of the certificate in {certificate.name}"
        elif asked and not password:
            yield "key", "must be a private key that is not encrypted"
        elif asked:
            yield "key", "must be a private key that the password opens"
        elif reason.startswith(("EE_", "CA_")):  # OpenSSL's security level
            yield "certificate", f"must be a certificate that OpenSSL takes ({reason})"
        else:
            yield "key", f"must be a PEM file of the private key ({reason})"


def _reason(error: OSError) -> str:
    """The reason given by OpenSSL or the system, without a path."""
    named = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return named or type(error).__name__


def _signature(path: Path | None) -> object:
    if path is None:
        return None
    try:
        found = os.stat(path)  # noqa: PTH116 - the link's end, in one call
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileContext(ssl.SSLContext):
    """A context that a listener or client gets once and that follows its files: `look` reads them again.

    Handshakes from then on use them; a connection that is there stays as it is. Files that cannot be used,
    such as a certificate whose key is still to be written, change nothing.

    It makes a new context rather than loading the files into the old one: OpenSSL forgets no authority, and
    would resume sessions that the old authorities let in.
    """

    #: The files that it follows.
    files: TlsFiles
    _seen: tuple[object, ...]
    _current: ssl.SSLContext
    #: The problems of the files as they are now; empty: none. One rule a file, by its role.
    problems: dict[Role, str]

    def __new__(cls, files: TlsFiles) -> FileContext:
        """Raises: OSError, as `TlsFiles.context`."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER if files.server else ssl.PROTOCOL_TLS_CLIENT)
        self.files = files
        self._seen = files.signature()
        self._current = files.context()
        self.problems = {}
        self.verify_mode = self._current.verify_mode
        return self

    def look(self) -> bool:
        """Read the files again where one has changed; answers whether they took effect."""
        signature = self.files.signature()
        if signature == self._seen:
            return False
        self._seen = signature  # taken before the reading: later writes are read at the next look
        self.problems = dict(problems(self.files))
        if self.problems:
            return False
        try:
            self._current = self.files.context()
        except OSError as error:  # the files were written between the two
            self.problems = {"certificate": _reason(error)}
            return False
        return True

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """As SSLContext's; an event loop begins each connection with it."""
        return self._current.wrap_bio(*arguments, **options)


class Fault(enum.Enum):
    """The meaning of a failed handshake, for the operator."""

    #: No trusted authority has signed the other end's certificate.
    AUTHORITY = enum.auto()
    #: The other end's certificate has expired, or is not valid yet by this machine's clock.
    EXPIRED = enum.auto()
    #: The other end's certificate is for another name.
    NAME = enum.auto()
    #: The other end does not take this end's certificate.
    OWN_CERTIFICATE = enum.auto()
    #: This end's certificate has expired, says the other end.
    OWN_EXPIRED = enum.auto()
    #: The other end speaks no TLS.
    NO_TLS = enum.auto()
    #: Anything else.
    OTHER = enum.auto()


#: Errors of a peer that speaks no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
#: Alerts about this end's certificate.
_ALERTS: Final = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE",
    "HANDSHAKE_FAILURE",
)


def fault(error: ssl.SSLError) -> Fault:
    """The fault that OpenSSL's error stands for."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "verify_message", "").lower()
        if "expired" in reason or "not yet valid" in reason:
            return Fault.EXPIRED
        return Fault.NAME if "hostname" in reason or "ip address" in reason else Fault.AUTHORITY
    if _names(error, ("CERTIFICATE_EXPIRED",)):
        return Fault.OWN_EXPIRED
    if _names(error, _ALERTS):
        return Fault.OWN_CERTIFICATE
    return Fault.NO_TLS if _names(error, _NO_TLS) else Fault.OTHER


def _names(error: ssl.SSLError, reasons: Collection[str]) -> bool:
    text = str(error)  # "[SSL: REASON] reason"; `reason` itself is missing where Python made the error
    return any(reason in text for reason in reasons)
