"""Artemis's connectors and acceptors: URLs, and what their parameters ask for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_plus

from bridge.migrate.document import Element
from bridge.migrate.draft import TWICE, Draft, Kind, Table, carry_row, unknown
from bridge.migrate.shown import shown_uri
from bridge.runtime.secret_values import is_secret
from bridge.settings import urls
from bridge.settings.artemis import SCOPES, SSL_ENABLED, TUNING, Form, is_about_tls

#: The host of a placeholder: no name system knows it (RFC 2606).
NOWHERE: Final = "fill-in.invalid"
#: The port of Artemis's acceptor and of a node's.
PORT: Final = 61616

_BLANKS: Final = re.compile(r"\s+")
_URI: Final = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<user>[^?#/@]*@)?(?P<host>\[[^\]]*\]|[^?#/:]*)(?::(?P<port>[^?#/]*))?(?P<path>/[^?#]*)?"
    r"(?:\?(?P<parameters>[^#]*))?(?:#.*)?",
    re.DOTALL,
)
#: Between the URIs of a list.
_NEXT: Final = re.compile(r",(?=[a-z]+://)")
_PROTOCOLS: Final = (
    "serves HTTP and links of nodes: clients of CORE, AMQP, MQTT, STOMP, OpenWire are to speak HTTP"
)
_ONE_ACCEPTOR: Final = "a node has one acceptor, for clients and for other nodes"
_NODES: Final = "leads to a node of core bridge, no longer to an Artemis broker"
_ONE_PLACE: Final = "a URL names one place: Artemis takes the first of a list"
_NO_PORT: Final = f"broker.xml gives no port: {PORT}, Artemis's default, is written"
_PLAIN: Final = (
    "without TLS, as in Artemis, where only sslEnabled=true turns it on; here wss:// in place of ws:// does"
)


@dataclass(frozen=True, slots=True)
class Transport:
    """The URI of a connector or acceptor, as Artemis reads it.

    Every blank is taken out; names and values are percent-decoded; the last of two equal names counts; of a
    list, ``(tcp://a,tcp://b)?parameters``, or with ``#`` before the others, the first URI counts.
    """

    scheme: str
    #: User and password with an ``@`` behind, which Artemis passes over; mostly empty.
    user: str
    #: As it is written, with the brackets of IPv6.
    host: str
    #: Empty: Artemis's default.
    port: str
    #: What stands between the port and the parameters; mostly empty.
    path: str
    parameters: dict[str, str] = field(default_factory=dict)
    #: The parameters that are written more than once, with their number.
    repeated: Mapping[str, int] = field(default_factory=dict)
    #: The other URIs of a list.
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Transport | None:
        """None where it is none."""
        first, others = _first(_BLANKS.sub("", text))
        found = _URI.fullmatch(first)
        if found is None:
            return None
        pairs = [pair.partition("=") for pair in re.split("[;&]", found["parameters"] or "") if pair]
        names = [unquote_plus(name) for name, _, _ in pairs]
        return cls(
            found["scheme"],
            found["user"] or "",
            found["host"],
            found["port"] or "",
            (found["path"] or "").removesuffix("/"),
            dict(zip(names, (unquote_plus(value) for _, _, value in pairs), strict=True)),
            {name: count for name, count in Counter(names).items() if count > 1},
            others,
        )

    @property
    def encrypted(self) -> bool:
        """Whether it asks for TLS."""
        return self.parameters.get(SSL_ENABLED, "").lower() == "true"

    @property
    def unused_tls(self) -> list[str]:
        """The parameters about TLS where none turns it on; a plain ``sslEnabled=false`` is none of them."""
        if self.encrypted:
            return []
        texts = [*self.parameters, *_parameter_names(self.others)]
        return [
            name
            for name in dict.fromkeys(texts)
            if is_about_tls(name)
            and (name != SSL_ENABLED or self.parameters.get(name, "").lower() != "false")
        ]

    @property
    def url(self) -> str:
        """The URL of a node at the same place."""
        place = f"{self.user}{self.host}:{self.port or PORT}{self.path}"
        return f"{'wss' if self.encrypted else 'ws'}://{place}"

    @property
    def loopback(self) -> bool:
        """Whether only its own machine reaches it; also where it is no URL, which the settings refuse."""
        try:
            return urls.reaching(self.url).loopback
        except ValueError:
            return True


def _first(text: str) -> tuple[str, tuple[str, ...]]:
    """The URI that counts, with the parameters that hold for it; the others of a list."""
    if text.startswith("("):
        inside, _, behind = text.removeprefix("(").partition(")")
        first, *others = _NEXT.split(inside)
        more = behind.removeprefix("?")
        if more:
            first += ("&" if "?" in first else "?") + more
        return first, tuple(others)
    text, _, behind = text.partition("#")
    first, *others = _NEXT.split(text)
    if others and "?" not in first and "?" in others[-1]:  # parameters behind a list hold for all of it
        first += "?" + others[-1].partition("?")[2]
    return first, (*others, *filter(None, _NEXT.split(behind)))


def _parameter_names(uris: Iterable[str]) -> Iterator[str]:
    for uri in uris:
        for pair in re.split("[;&]", uri.partition("?")[2]):
            yield unquote_plus(pair.partition("=")[0])


def convert_connectors(draft: Draft, core: Element) -> None:
    """Write `[connectors.NAME]` for each."""
    names: set[str] = set()
    for connector in (one for connectors in core.named("connectors") for one in connectors.each()):
        name, place = connector.attribute("name"), connector.place
        transport = Transport.of(connector.content())
        if connector.name != "connector" or transport is None:
            text = unknown(connector.name) if connector.name != "connector" else "must be tcp://host:port"
            draft.general.remark(Kind.LEFT, place, f"{connector.name} {name}".rstrip(), text, connector)
        elif name in names:
            draft.general.remark(Kind.LEFT, place, f"connector {name}", TWICE, connector)
        elif transport.scheme != "tcp":
            text = 'only tcp:// leads to another process; static-connectors = ["journal"] is this node itself'
            draft.general.remark(Kind.LEFT, place, f"connector {name}", text, connector)
        else:
            names.add(name)
            _connector(draft.add(("connectors", name), f"connector {name}", place), transport)


def _connector(table: Table, transport: Transport) -> None:
    place = table.place
    table.set("url", transport.url, place)
    check = _NODES
    if not transport.loopback:
        variable = token_variable(table.path[1])
        table.set("token", f"${{{variable}}}", place, placeholder=True)
        check += f"; the variable {variable} is to hold the token of this node there"
    table.remark(Kind.CHECK, place, "url", check, transport.url)
    if transport.encrypted:
        text = "a PEM file of the authorities; empty: the system's"
        table.set("ca", "", place, placeholder=True)
        table.remark(Kind.CHECK, place, "ca", text)
    _doubts(table, transport)
    _parameters(table, "connector", transport)


def _doubts(table: Table, transport: Transport) -> None:
    """Name what is odd in a URI: TLS that is not turned on, no port, other places, names that come twice."""
    place = table.place
    if transport.unused_tls:
        table.remark(Kind.CHECK, place, "url", _PLAIN, ", ".join(transport.unused_tls))
    if not transport.port:
        table.remark(Kind.CHECK, place, "url", _NO_PORT)
    for other in transport.others:
        table.remark(Kind.LEFT, place, "url", _ONE_PLACE, shown_uri(other))
    for name, count in transport.repeated.items():
        table.remark(Kind.LEFT, place, name, f"written {count} times: the last one counts")


def token_variable(name: str) -> str:
    """The environment variable that holds the token of a connector: ``HUB_TOKEN``."""
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_token".upper()).lstrip("_0123456789")


def convert_acceptors(draft: Draft, core: Element) -> None:
    """Write `[acceptor]` for the first that takes core clients."""
    acceptors = [one for group in core.named("acceptors") for one in group.each()]
    found = [(acceptor, Transport.of(acceptor.content())) for acceptor in acceptors]
    chosen = next((acceptor for acceptor, transport in found if _takes_core(acceptor, transport)), None)
    for acceptor, transport in found:
        name, place = acceptor.attribute("name"), acceptor.place
        if acceptor is chosen and transport is not None:
            _acceptor(draft.add(("acceptor",), f"acceptor {name}", place), transport)
        else:
            text = _ONE_ACCEPTOR if acceptor.name == "acceptor" else unknown(acceptor.name)
            draft.general.remark(Kind.LEFT, place, f"{acceptor.name} {name}".rstrip(), text, acceptor)


def _takes_core(acceptor: Element, transport: Transport | None) -> bool:
    if acceptor.name != "acceptor" or transport is None or transport.scheme != "tcp":
        return False
    return "CORE" in transport.parameters.get("protocols", "CORE").upper().split(",")


def _acceptor(table: Table, transport: Transport) -> None:
    place = table.place
    table.set("url", transport.url, place)
    table.remark(Kind.CHECK, place, "url", _PROTOCOLS, transport.url)
    if transport.encrypted:
        for key, file in (("certificate", "acceptor.pem"), ("key", "acceptor-key.pem")):
            table.set(key, file, place, placeholder=True)
        table.remark(
            Kind.CHECK,
            place,
            "certificate",
            "PEM files of the certificate and its key, in place of a key store",
        )
    elif not transport.loopback:
        table.set("insecure", True, place)
        table.remark(
            Kind.CHECK,
            place,
            "insecure",
            "without TLS, as in broker.xml; wss:// with certificate and key has it",
        )
    if not transport.loopback:
        table.set("tokens", ["${ACCEPTOR_TOKEN}"], place, placeholder=True)
        text = (
            "off loopback every caller shows a token: ACCEPTOR_TOKEN has every right, [[acceptor.users]] some"
        )
        table.remark(Kind.CHECK, place, "tokens", text)
    _doubts(table, transport)
    _parameters(table, "acceptor", transport)


def _parameters(table: Table, scope: str, transport: Transport) -> None:
    """Write the keys of a URI's parameters, and a remark for all that have the same answer."""
    answers: dict[tuple[str, bool], list[str]] = {}
    for name, value in transport.parameters.items():
        row = SCOPES[scope].get(name, TUNING)
        if row.form is not Form.COMPOSED:
            carry_row(table, row, value, table.place)
        elif row.answer and not row.becomes and value.lower() not in row.same:
            answers.setdefault((row.answer, row.idle), []).append(name)
    for (answer, idle), names in answers.items():
        kind = Kind.IDLE if idle else Kind.LEFT
        values = [f"{name}={transport.parameters[name]}" for name in names if not is_secret(name)]
        table.remark(kind, table.place, ", ".join(names), answer, "" if idle else ", ".join(values))
