"""URLs of connectors and acceptors are read as Artemis reads them.

What Artemis makes of each was asked of `ConfigurationUtils.parseConnectorURI` of Artemis 2.44.0.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from bridge.migrate.connectors import Transport
from bridge.migrate.migration import Migration, migrate


def migrated(directory: Path, url: str, what: str = "connector") -> Migration:
    path = directory / "broker.xml"
    path.write_text(f'<core><{what}s><{what} name="a">{escape(url)}</{what}></{what}s></core>')
    return migrate(path, {})


def texts(migration: Migration) -> list[str]:
    return [f"{remark.what}: {remark.text}; {remark.found}" for remark in migration.remarks]


@pytest.mark.parametrize(
    ("url", "becomes"),
    [
        ("tcp://h:61617?sslEnabled = true", "wss://h:61617"),
        ("tcp://h:1?ssl Enabled=tr\nue", "wss://h:1"),
        ("tcp:// h :1 ? sslEnabled=TRUE ; tcpNoDelay=true", "wss://h:1"),
        ("tcp://h:1?sslEnabled=%74rue", "wss://h:1"),
        ("tcp://h:1?ssl%45nabled=true", "wss://h:1"),
        ("tcp://h:1?sslEnabled=false&sslEnabled=true", "wss://h:1"),
        ("tcp://h:1?sslEnabled=true&sslEnabled=false", "ws://h:1"),
        ("tcp://h:1?SSLENABLED=true", "ws://h:1"),
        ("tcp://h:1?sslEnabled", "ws://h:1"),
        ("tcp://h:1/?sslEnabled=true", "wss://h:1"),
        ("tcp://h?sslEnabled=true", "wss://h:61616"),
        ("tcp://h", "ws://h:61616"),
        ("tcp://[::1]", "ws://[::1]:61616"),
        ("(tcp://a:1,tcp://b:2)?sslEnabled=true", "wss://a:1"),
        ("(tcp://a:1?useEpoll=true,tcp://b:2)?sslEnabled=true", "wss://a:1"),
        ("(tcp://a:1,tcp://b:2?sslEnabled=true)", "ws://a:1"),
        ("tcp://a:1?sslEnabled=true#tcp://b:3", "wss://a:1"),
        ("tcp://a:1,tcp://b:2?sslEnabled=true", "wss://a:1"),
        ("(tcp://a:1)", "ws://a:1"),
    ],
)
def test_a_url_leads_where_artemis_goes_and_has_tls_where_artemis_has_it(url: str, becomes: str) -> None:
    transport = Transport.of(url)
    assert transport is not None
    assert transport.url == becomes


@pytest.mark.parametrize("url", ["TCP://h:1", "h:1", "http", ""])
def test_what_artemis_refuses_is_none(url: str) -> None:
    assert Transport.of(url) is None or Transport.of(url) == Transport.of("")


@pytest.mark.parametrize("what", ["connector", "acceptor"])
@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ("sslEnabled=yes", "sslEnabled"),
        ("SSLENABLED=true;keyStorePath=a.jks", "SSLENABLED, keyStorePath"),
        ("useDefaultSslContext=true", "useDefaultSslContext"),
        ("sslEnabled=false;trustStorePath=a.jks", "trustStorePath"),
        ("sslEnabled=${none}", "sslEnabled"),
    ],
)
def test_tls_that_artemis_does_not_turn_on_is_named(
    what: str, parameters: str, named: str, tmp_path: Path
) -> None:
    found = texts(migrated(tmp_path, f"tcp://localhost:1?{parameters}", what))
    plain = (
        "without TLS, as in Artemis, where only sslEnabled=true turns it on; here wss:// in place of ws:// "
    )
    assert f"{what} a: url: {plain}does; {named}" in found


def test_a_port_that_is_not_given_other_places_and_repeated_names_are_named(tmp_path: Path) -> None:
    url = "(tcp://a,tcp://b:2?keyStorePassword=t0p-s3cret)?useEpoll=true;useEpoll=false"
    found = texts(migrated(tmp_path, url))
    assert "connector a: url: broker.xml gives no port: 61616, Artemis's default, is written; " in found
    place = "a URL names one place: Artemis takes the first of a list; tcp://b:2, keyStorePassword=***"
    assert f"connector a: url: {place}" in found
    assert "connector a: useEpoll: written 2 times: the last one counts; " in found


def test_an_acceptor_that_is_left_shows_its_parameters_and_no_password(tmp_path: Path) -> None:
    url = "tcp://h:1?protocols=AMQP;keyStorePassword=t0p-s3cret;amqpCredits=1000"
    migration = migrated(tmp_path, url, "acceptor")
    (remark,) = migration.remarks
    assert remark.found == "tcp://h:1, protocols=AMQP, keyStorePassword=***, amqpCredits=1000"
    assert "t0p-s3cret" not in migration.text
