"""The broker.xml that Artemis's own `artemis create` writes, for several of its options; its schema.

The templates are in the jar of Artemis's command line, which Maven brings once, beside the other jars.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.filters.artemis import VERSION, copy_dependencies, libraries
from tests.kafka.cluster.distribution import Missing, cache, locked

HERE: Final = Path(__file__).parent
JAR: Final = f"artemis-cli-{VERSION}.jar"
SHA256: Final = "d093da46d3529dc60e83b3dc49758eb0051b011f9cca91bf2f41bd641bc78f37"
_TEMPLATES: Final = "org/apache/activemq/artemis/cli/commands/etc/"
_SCHEMA: Final = "schema/artemis-configuration.xsd"
_XSD: Final = "{http://www.w3.org/2001/XMLSchema}"

#: Without options: places and their texts; a name that ends in .txt is the template of this name.
PLAIN: Final[Mapping[str, str]] = {
    "name": "0.0.0.0",
    "persistence-enabled": "true",
    "journal.settings": "ASYNCIO",
    "purge-page-folders": "false",
    "data.dir": "data",
    "fsync": "true",
    "device-block-size": "4096",
    "journal-buffer.settings": "journal-buffer-settings.txt",
    "nanoseconds": "3333333",
    "maxaio": "4096",
    "writesPerMillisecond": "0.3",
    "ping-config.settings": "ping-settings.txt",
    "ping": "10.0.0.1",
    "page-sync.settings": "page-sync-settings.txt",
    "global-max-section": "global-max-default.txt",
    "global-max-messages": "-1",
    "host": "0.0.0.0",
    "default.port": "61616",
    "amqp.port": "5672",
    "stomp.port": "61613",
    "hq.port": "5445",
    "mqtt.port": "1883",
    "support-advisory": "false",
    "suppress-internal-management-objects": "false",
    "amqp-acceptor": "amqp-acceptor.txt",
    "stomp-acceptor": "stomp-acceptor.txt",
    "hornetq-acceptor": "hornetq-acceptor.txt",
    "mqtt-acceptor": "mqtt-acceptor.txt",
    "role": "amq",
    "full-policy": "PAGE",
    "auto-create": "true",
    "auto-delete": "true",
}
_CLUSTER: Final = {
    "connector-config.settings": "connector-settings.txt",
    "cluster-security.settings": "cluster-security-settings.txt",
    "cluster-user": "cluster-admin",
    "cluster-password": "t0p-s3cret",
    "message-load-balancing": "ON_DEMAND",
    "max-hops": "1",
    "host": "node-1.example",
}
#: What the options add, by a name.
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "blocking": {"full-policy": "BLOCK", "auto-create": "false", "auto-delete": "false"},
    "clustered": {**_CLUSTER, "cluster.settings": "cluster-settings.txt"},
    "static": {
        **_CLUSTER,
        "cluster.settings": "cluster-static-settings.txt",
        "connectors-list": "<connector-ref>artemis</connector-ref>",
        "replicated.settings": "replicated-primary-settings.txt",
    },
    "backup": {
        **_CLUSTER,
        "cluster.settings": "cluster-settings.txt",
        "shared-store.settings": "shared-store-settings.txt",
        "primary-backup": "backup",
        "failover-on-shutdown": "true",
    },
    "database": {
        "jdbc": "database-store.txt",
        "global-max-section": "global-max-specified.txt",
        "global-max-size": "100M",
    },
}


def brokers() -> Iterator[tuple[str, str]]:
    """Name and text of each broker.xml. Raises: Missing: no Maven or no network."""
    with zipfile.ZipFile(_jar()) as jar:
        templates = {
            name.removeprefix(_TEMPLATES): jar.read(name).decode()
            for name in jar.namelist()
            if name.startswith(_TEMPLATES) and name.endswith((".txt", ".xml"))
        }
    for option, more in OPTIONS.items():
        yield option, _filled(templates["broker.xml"], {**PLAIN, **more}, templates)


def _filled(text: str, places: Mapping[str, str], templates: Mapping[str, str]) -> str:
    """A template with its places filled in, those of its parts too; a place without a text is empty."""
    while "${" in text:
        text = re.sub(r"\$\{([^}]*)\}", lambda place: _text(places.get(place[1], ""), templates), text)
    return text


def _text(name: str, templates: Mapping[str, str]) -> str:
    return templates.get(name, name)


def schema() -> Mapping[str, set[str]]:
    """The elements and attributes of each type of Artemis's schema. Raises: Missing."""
    (server,) = libraries().glob("artemis-server-*.jar")
    with zipfile.ZipFile(server) as jar:
        root = ET.fromstring(jar.read(_SCHEMA))
    types = {str(kind.get("name")): kind for kind in root.iter(f"{_XSD}complexType") if kind.get("name")}
    return {name: set(_members(kind)) for name, kind in types.items()}


def _members(kind: ET.Element) -> Iterator[str]:
    for inner in kind:
        if inner.tag in (f"{_XSD}element", f"{_XSD}attribute"):
            yield str(inner.get("name") or inner.get("ref"))
        elif inner.tag != f"{_XSD}annotation":
            yield from _members(inner)


def _jar() -> Path:
    directory = cache() / f"artemis-{VERSION}"
    with locked(directory):
        jar = directory / "cli" / JAR
        if not jar.is_file():
            with tempfile.TemporaryDirectory(dir=directory) as temporary:
                fetched = Path(temporary) / "cli"
                _fetch(fetched)
                fetched.rename(jar.parent)
    return jar


def _fetch(into: Path) -> None:
    copy_dependencies(HERE / "pom.xml", into)
    found = hashlib.sha256((into / JAR).read_bytes()).hexdigest()
    if found != SHA256:
        raise Missing(f"{JAR} must have SHA-256 {SHA256}; found {found}")
