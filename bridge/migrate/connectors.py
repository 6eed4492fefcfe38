"""Artemis's connectors and acceptors: URLs, and what their parameters ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bridge.migrate.document import Element
from bridge.migrate.draft import Draft, Kind, Table, carry_row, unknown
from bridge.settings import urls
from bridge.settings.artemis import SCOPES, TUNING, ArtemisKey, Form

#: The host of a placeholder: no name system knows it (RFC 2606).
NOWHERE: Final = "fill-in.invalid"
#: The port of Artemis's acceptor and of a node's.
PORT: Final = 61616

_URI: Final = re.compile(r"(?P<scheme>[a-z]+)://(?P<place>[^?]*)(?:\?(?P<parameters>.*))?", re.DOTALL)
_PROTOCOLS: Final = (
    "serves HTTP and links of nodes: clients of CORE, AMQP, MQTT, STOMP, OpenWire are to speak HTTP"
)
_ONE_ACCEPTOR: Final = "a node has one acceptor, for clients and for other nodes"
_NODES: Final = "leads to a node of core bridge, no longer to an Artemis broker"


@dataclass(frozen=True, slots=True)
class Transport:
    """The URI of a connector or acceptor."""

    scheme: str
    #: Host and port as they are written.
    place: str
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Transport | None:
        """None where it is none."""
        found = _URI.fullmatch(text)
        if found is None:
            return None
        pairs = (pair.partition("=") for pair in re.split("[;&]", found["parameters"] or "") if pair)
        return cls(found["scheme"], found["place"], {name.strip(): value for name, _, value in pairs})

    @property
    def encrypted(self) -> bool:
        """Whether it asks for TLS."""
        return self.parameters.get("sslEnabled", "").lower() == "true"

    @property
    def url(self) -> str:
        """The URL of a node at the same place."""
        return f"{'wss' if self.encrypted else 'ws'}://{self.place}"

    @property
    def loopback(self) -> bool:
        """Whether only its own machine reaches it; also where it is no URL, which the settings refuse."""
        try:
            return urls.reaching(self.url).loopback
        except ValueError:
            return True


def convert_connectors(draft: Draft, connectors: Element) -> None:
    """Write `[connectors.NAME]` for each."""
    for connector in connectors.children:
        name, place = connector.attributes.get("name", ""), connector.place
        transport = Transport.of(connector.text)
        if connector.name != "connector" or transport is None:
            text = unknown(connector.name) if connector.name != "connector" else "must be tcp://host:port"
            draft.general.remark(Kind.LEFT, place, f"{connector.name} {name}".rstrip(), text, connector.text)
            continue
        if transport.scheme != "tcp":
            text = 'only tcp:// leads to another process; static-connectors = ["journal"] is this node itself'
            draft.general.remark(Kind.LEFT, place, f"connector {name}", text, f"{transport.scheme}://")
            continue
        table = draft.add(("connectors", name), f"connector {name}", place)
        table.set("url", transport.url, place)
        check = _NODES
        if not transport.loopback:
            variable = token_variable(name)
            table.set("token", f"${{{variable}}}", place, placeholder=True)
            check += f"; the variable {variable} is to hold the token of this node there"
        table.remark(Kind.CHECK, place, "url", check, transport.url)
        if transport.encrypted:
            text = "a PEM file of the authorities; empty: the system's"
            table.set("ca", "", place, placeholder=True)
            table.remark(Kind.CHECK, place, "ca", text)
        _parameters(table, "connector", transport)


def token_variable(name: str) -> str:
    """The environment variable that holds the token of a connector: ``HUB_TOKEN``."""
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_token".upper()).lstrip("_0123456789")


def convert_acceptors(draft: Draft, acceptors: Element) -> None:
    """Write `[acceptor]` for the first that takes core clients."""
    chosen = next(_candidates(acceptors.children), None)
    for acceptor in acceptors.children:
        name, place = acceptor.attributes.get("name", ""), acceptor.place
        if acceptor is chosen:
            _acceptor(draft.add(("acceptor",), f"acceptor {name}", place), acceptor)
        else:
            text = _ONE_ACCEPTOR if acceptor.name == "acceptor" else unknown(acceptor.name)
            draft.general.remark(Kind.LEFT, place, f"{acceptor.name} {name}".rstrip(), text, acceptor.text)


def _candidates(acceptors: Iterable[Element]) -> Iterator[Element]:
    for acceptor in acceptors:
        transport = Transport.of(acceptor.text)
        if acceptor.name != "acceptor" or transport is None or transport.scheme != "tcp":
            continue
        if "CORE" in transport.parameters.get("protocols", "CORE").upper().split(","):
            yield acceptor


def _acceptor(table: Table, acceptor: Element) -> None:
    transport = Transport.of(acceptor.text)
    assert transport is not None
    place = acceptor.place
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
        carry_row(table, ArtemisKey(", ".join(names), answer=answer, idle=idle), "", table.place)
