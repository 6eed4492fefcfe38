"""Authentication and rights of callers: origins and hosts, tokens, client certificates, users' rights."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import hdrs, web

from bridge.errors import Forbidden
from bridge.http.problems import OriginRefused, Unauthenticated
from bridge.messages.addresses import matches

#: Names by which a loopback listener is called. Any other Host is a web page's attempt at DNS rebinding.
LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: In ``allowed-origins``: every page may call.
ANY_ORIGIN: Final = "*"

_ADDRESSES_REMEMBERED_MAX = 4096


@dataclass(frozen=True, slots=True)
class User:
    """One entry of ``[[acceptor.users]]``."""

    name: str
    #: Bearer token; empty: none.
    token: str = ""
    #: Common or alternative name of a client certificate; empty: none.
    certificate_name: str = ""
    #: Wildcards of addresses (`bridge.messages.addresses.matches`). None: no address, but every one over a
    #: link.
    send: Sequence[str] | None = None
    receive: Sequence[str] = ()
    #: May open a node link.
    link: bool = False
    #: Wildcards of addresses whose queues it may delete.
    delete_queues: Sequence[str] = ()


class Principal:
    """A caller that is known, and its rights. The token is not in it."""

    def __init__(
        self,
        name: str,
        send: Sequence[str] | None,
        receive: Sequence[str],
        *,
        link: bool,
        delete_queues: Sequence[str] = (),
        user: bool = True,
    ) -> None:
        """`send`: None: no address, and over links every address.

        `user`: it is a user of the settings; other callers have every right.
        """
        self.name = name
        self.is_user = user
        #: Set once the credential that it came with is not valid any more: its links end.
        self.revoked = asyncio.Event()
        self.may_link = link
        #: Its rights, as they were given.
        self.rights = (None if send is None else tuple(send), tuple(receive), link, tuple(delete_queues))
        self._send = _Right(send or ())
        self._deliver = _Right(("#",)) if send is None else self._send
        self._receive = _Right(receive)
        self._delete_queues = _Right(delete_queues)

    def may_send(self, address: str) -> bool:
        """Whether it may send to the address."""
        return self._send.covers(address)

    def may_receive(self, address: str) -> bool:
        """Whether it may read from the address."""
        return self._receive.covers(address)

    def may_delete_queue(self, address: str) -> bool:
        """Whether it may delete queues of the address, and change their filters."""
        return self._delete_queues.covers(address)

    def check_send(self, address: str, key: str = "address") -> None:
        """Check that it may send to the address. Raises: Forbidden."""
        if not self._send.covers(address):
            raise Forbidden(f"{self.name} may not send to {address}", key, found=address)

    def check_deliver(self, address: str) -> None:
        """Check that a link of the caller may deliver to the address. Raises: Forbidden."""
        if not self._deliver.covers(address):
            raise Forbidden(f"{self.name} may not send to {address}", "address", found=address)

    def check_receive(self, address: str, key: str = "address") -> None:
        """Check that it may read from the address. Raises: Forbidden."""
        if not self._receive.covers(address):
            raise Forbidden(f"{self.name} may not receive from {address}", key, found=address)

    def check_delete_queue(self, address: str) -> None:
        """Check that it may delete queues of the address. Raises: Forbidden."""
        if not self._delete_queues.covers(address):
            raise Forbidden(f"{self.name} may not delete queues of {address}", "address", found=address)

    def check_link(self) -> None:
        """Check that it may open a node link. Raises: Forbidden."""
        if not self.may_link:
            raise Forbidden(f"{self.name} may not open a node link", "link")


class _Right:
    """Wildcards, and their answers for addresses so far: asked for every message."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._known: dict[str, bool] = {}

    def covers(self, address: str) -> bool:
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= _ADDRESSES_REMEMBERED_MAX:
                self._known.clear()
            known = any(matches(pattern, address) for pattern in self._patterns)
            self._known[address] = known
        return known


def _principal(user: User) -> Principal:
    return Principal(user.name, user.send, user.receive, link=user.link, delete_queues=user.delete_queues)


def _by_certificate_name(users: Iterable[User]) -> dict[str, Principal]:
    return {user.certificate_name: _principal(user) for user in users if user.certificate_name}


def every_right(name: str) -> Principal:
    """A caller that may do everything."""
    return Principal(name, ("#",), ("#",), link=True, delete_queues=("#",), user=False)


class Authentication:
    """Authenticates requests, or says why one is refused.

    On loopback no credential is needed as long as neither token nor user is configured. As soon as there is
    one, and always off loopback, every request needs a token, a user's token or a client certificate.
    """

    def __init__(
        self,
        *,
        host: str,
        tokens: Iterable[str] = (),
        users: Iterable[User] = (),
        allowed_origins: Iterable[str] = (),
        client_certificates: bool = False,
    ) -> None:
        """`client_certificates`: the listener verifies them, so one that is present is genuine."""
        self.loopback = is_loopback(host)
        self._hosts = LOOPBACK_HOSTS | {f"[{host}]" if ":" in host else host.lower()}
        self._origins = frozenset(allowed_origins)
        self._tokens: dict[bytes, tuple[bytes, Principal]] = {}
        self._certificates: dict[str, Principal] = {}
        self._client_certificates = client_certificates
        self._anybody = every_right("anybody")
        self.renew_tokens(tokens, users)
        self.renew_certificates(users)
        self._open = self._is_open()

    def _is_open(self) -> bool:
        return self.loopback and not (self._tokens or self._certificates or self._client_certificates)

    def renew(self, tokens: Iterable[str], users: Sequence[User] = ()) -> None:
        """Accept these callers and no others, each with these rights; callers that are gone, or have other
        rights, are `Principal.revoked`.
        """
        self.renew_tokens(tokens, users)
        certificates = _by_certificate_name(users)
        rights = {name: (one.name, one.rights) for name, one in certificates.items()}
        if rights != {name: (one.name, one.rights) for name, one in self._certificates.items()}:
            self.renew_certificates(users)
        if self._open and not self._is_open():
            self._anybody.revoked.set()
            self._anybody = every_right("anybody")
        self._open = self._is_open()

    def renew_tokens(self, tokens: Iterable[str], users: Iterable[User] = ()) -> None:
        """Accept these tokens and no others; callers that came with any other are `Principal.revoked`."""
        before, self._tokens = self._tokens, {}
        for index, token in enumerate(tokens):
            self._know_token(token, before, every_right(f"tokens[{index}]"))
        for user in users:
            if user.token:
                self._know_token(user.token, before, _principal(user))
        for digest, (_, principal) in before.items():
            if digest not in self._tokens:
                principal.revoked.set()

    @property
    def knows_several(self) -> bool:
        """Whether there is more than one caller to tell apart."""
        by_token = {principal.name for _, principal in self._tokens.values()}
        return len(by_token | {principal.name for principal in self._certificates.values()}) > 1

    def _know_token(
        self, token: str, before: Mapping[bytes, tuple[bytes, Principal]], principal: Principal
    ) -> None:
        """Add a token; a known one keeps its principal, unless it belongs to another caller now."""
        raw = token.encode("utf-8", "surrogateescape")
        digest = hashlib.sha256(raw).digest()
        known = before.get(digest)
        if known is not None:
            same = known[1].is_user == principal.is_user and (
                not principal.is_user
                or (known[1].name, known[1].rights) == (principal.name, principal.rights)
            )
            if same:
                principal = known[1]
            else:
                known[1].revoked.set()
        self._tokens[digest] = (raw, principal)

    def renew_certificates(self, users: Iterable[User]) -> None:
        """Revoke callers that came with a certificate: its authority is perhaps no longer trusted."""
        for principal in (*self._certificates.values(), self._anybody):
            principal.revoked.set()
        self._anybody = every_right("anybody")
        self._certificates = _by_certificate_name(users)

    def check_origin(self, request: web.Request) -> None:
        """Refuse web pages whose origin is not allowed, whatever credentials they have.

        Raises: OriginRefused.
        """
        headers = request.headers
        if self.loopback:
            host = headers.get(hdrs.HOST, "")
            name = host if host in self._hosts else _without_port(host).lower()
            if name not in self._hosts:
                raise OriginRefused(
                    "a loopback listener answers to localhost, 127.0.0.1 and [::1] only", "Host", found=host
                )
        origin = headers.get(hdrs.ORIGIN)
        if origin is not None and not self.allows_origin(origin):
            raise OriginRefused("the Origin is not one of allowed-origins", "Origin", found=origin)

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of this origin may call; compared as a whole, as browsers send it. ``*``: any."""
        return origin in self._origins or ANY_ORIGIN in self._origins

    def authenticate(self, request: web.Request) -> Principal:
        """The caller of the request. Raises: Unauthenticated."""
        if self._open:
            return self._anybody
        given = request.headers.get(hdrs.AUTHORIZATION)
        if given is not None:
            principal = self._by_token(given)
            if principal is not None:
                return principal
            raise Unauthenticated("the bearer token is not known here", "Authorization")
        if self._client_certificates:
            principal = self._by_certificate(request)
            if principal is not None:
                return principal
        raise Unauthenticated("a bearer token or a client certificate is needed", "Authorization")

    def _by_token(self, header: str) -> Principal | None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        raw = token.strip().encode("utf-8", "surrogateescape")
        # Found by digest, so that the time taken says nothing about how much of a token is right.
        known, principal = self._tokens.get(hashlib.sha256(raw).digest(), (b"", self._anybody))
        return principal if known and hmac.compare_digest(known, raw) else None

    def _by_certificate(self, request: web.Request) -> Principal | None:
        """The user that the certificate names; where no user has a certificate name, any certificate has
        every right.
        """
        certificate = request.get_extra_info("peercert")
        if not certificate:
            return None
        if not self._certificates:
            return self._anybody
        for name in certificate_names(certificate):
            if name in self._certificates:
                return self._certificates[name]
        return None


def is_loopback(host: str) -> bool:
    """Whether a listener on `host` is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def certificate_names(certificate: Mapping[str, Any]) -> list[str]:
    """Alternative names, then common names, of what `ssl.SSLSocket.getpeercert` returns."""
    names = [value for _, value in certificate.get("subjectAltName", ())]
    for relative_name in certificate.get("subject", ()):
        names.extend(value for kind, value in relative_name if kind == "commonName")
    return names


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
