from __future__ import annotations

import socket
from pathlib import Path

import pydantic
import pytest

from bridge.settings import Settings, load
from tests.harness.certificates import make_certificates

BRIDGE = """
[connectors.hub]
url = "ws://hub:61616"
token = "s3cret"

[[bridges]]
name = "orders-to-hub"
queue-name = "orders"
static-connectors = ["hub"]
"""


def settings(path: Path, text: str, **environ: str) -> Settings:
    path.write_text(text)
    return load(path, environ)


def test_an_empty_file_is_a_node_that_opens_nothing(settings_file: Path) -> None:
    found = settings(settings_file, "")
    assert found.node.name == socket.gethostname()
    assert (found.acceptor, found.operations, found.bridges) == (None, None, ())
    assert found.duplicate_detection.id_cache_size == 20_000


def test_an_empty_table_opens_at_the_default_place(settings_file: Path) -> None:
    found = settings(settings_file, "[acceptor]\n[operations]\n")
    assert found.acceptor is not None
    assert found.operations is not None
    assert (found.acceptor.endpoint.host, found.acceptor.endpoint.port) == ("127.0.0.1", 61616)
    assert (found.operations.endpoint.host, found.operations.endpoint.port) == ("127.0.0.1", 8161)


def test_times_are_milliseconds_and_sizes_bytes(settings_file: Path) -> None:
    text = 'retry-interval = "5s"\ncheck-period = 100\nconnection-ttl = -1\nproducer-window-size = "64KiB"\n'
    (bridge,) = settings(settings_file, BRIDGE + text).bridges
    assert (bridge.retry_interval_ms, bridge.check_period_ms, bridge.connection_ttl_ms) == (5000, 100, -1)
    assert bridge.producer_window_size_bytes == 64 * 1024


def test_the_longest_retry_interval_is_never_below_the_first(settings_file: Path) -> None:
    (bridge,) = settings(settings_file, BRIDGE + 'retry-interval = "5s"\n').bridges
    assert bridge.max_retry_interval_ms == 5000


def test_a_whole_number_passes_for_a_float(settings_file: Path) -> None:
    (bridge,) = settings(settings_file, BRIDGE + "retry-interval-multiplier = 2\n").bridges
    assert bridge.retry_interval_multiplier == 2.0


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "settings.toml"
    path.parent.mkdir()
    found = settings(path, '[node]\ndata-directory = "../data"\n')
    assert found.node.data_directory == path.parent / "../data"
    assert found.delivery_log_directory == path.parent / "../data" / "delivery-log"
    found = settings(path, '[delivery-log]\ndirectory = "/var/log/core-bridge"\n')
    assert found.node.data_directory == path.parent / "data"
    assert found.delivery_log_directory == Path("/var/log/core-bridge")


def test_paths_are_absolute_where_the_file_is_named_by_a_relative_one(settings_file: Path) -> None:
    assert settings(settings_file, "").node.data_directory == Path.cwd() / "data"


def test_tokens_come_from_files_and_variables(settings_file: Path) -> None:
    Path("token").write_text("from-file\n")
    found = settings(settings_file, '[acceptor]\ntokens = ["${file:token}", "${TOKEN}"]\n', TOKEN="from-env")
    assert found.acceptor is not None
    assert found.acceptor.tokens == ("from-file", "from-env")


def test_settings_that_are_printed_hold_no_token(settings_file: Path) -> None:
    text = BRIDGE + '[acceptor]\ntokens = ["s3cret"]\n[[acceptor.users]]\nname = "u"\ntoken = "s3cret-too"\n'
    found = settings(settings_file, text)
    assert found.connectors["hub"].token == "s3cret"
    assert "s3cret" not in repr(found)
    assert "s3cret" not in str(found)


def test_settings_cannot_be_changed(settings_file: Path) -> None:
    found = settings(settings_file, BRIDGE)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        found.node.name = "other"


@pytest.mark.processes
def test_mutual_tls_protects_an_open_listener(settings_file: Path) -> None:
    assert list(make_certificates(Path.cwd(), "server"))
    text = """
[acceptor]
url = "wss://0.0.0.0:61616"
certificate = "server.pem"
key = "server.key"
client-ca = "authority.pem"
[[acceptor.users]]
name = "orders-service"
certificate-name = "orders.example"
"""
    acceptor = settings(settings_file, text).acceptor
    assert acceptor is not None
    assert acceptor.certificate == Path.cwd() / "server.pem"
    assert (acceptor.endpoint.scheme, acceptor.endpoint.loopback) == ("wss", False)


def test_tls_ended_elsewhere_and_tokens_protect_an_open_listener(settings_file: Path) -> None:
    text = '[acceptor]\nurl = "ws://[::]:61616"\ninsecure = true\ntokens = ["t"]\n'
    acceptor = settings(settings_file, text).acceptor
    assert acceptor is not None
    assert (acceptor.endpoint.host, acceptor.endpoint.port) == ("::", 61616)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("ws://hub:61616", "hub", 61616),
        ("wss://hub.example:443", "hub.example", 443),
        ("ws://hub:80/", "hub", 80),
        ("ws://[::1]:1", "::1", 1),
    ],
)
def test_what_a_connector_reaches(settings_file: Path, url: str, host: str, port: int) -> None:
    connector = settings(settings_file, f'[connectors.hub]\nurl = "{url}"\n').connectors["hub"]
    assert (connector.endpoint.host, connector.endpoint.port) == (host, port)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("", "orders-to-hub: journal:orders -> hub: exactly-once"),
        ("use-duplicate-detection = false", "orders-to-hub: journal:orders -> hub: at-least-once"),
    ],
)
def test_a_bridge_says_what_it_promises(settings_file: Path, keys: str, line: str) -> None:
    (bridge,) = settings(settings_file, BRIDGE + keys).bridges
    assert str(bridge) == line


@pytest.mark.parametrize(
    ("written", "checks"), [("", True), ('"auto"', False), ("true", True), ("false", False)]
)
def test_a_target_checks_producers_ids_unless_told_otherwise(
    settings_file: Path, written: str, checks: bool
) -> None:
    keys = f"check-producer-ids = {written}" if written else ""
    (bridge,) = settings(settings_file, BRIDGE + keys).bridges
    assert bridge.checks_producer_ids is checks


def test_kafka_options_of_the_client_are_handed_on(settings_file: Path) -> None:
    settings_file.write_text(
        '[connectors.us]\nurl = "kafka://a:9092,b:9092"\n'
        '[connectors.us.kafka]\nfetch-max-wait-ms = 100\nsecurity-protocol = "SSL"\n'
    )
    kafka = load(settings_file, {}).connectors["us"].kafka
    assert kafka is not None
    assert (kafka.security_protocol, kafka.model_extra) == ("SSL", {"fetch-max-wait-ms": 100})


@pytest.mark.parametrize(
    ("text", "shown"), [("", ""), ("  ", ""), ("a = 'x'", ", filter \"a = 'x'\""), (" a", ', filter " a"')]
)
def test_a_blank_filter_is_none(settings_file: Path, text: str, shown: str) -> None:
    (bridge,) = settings(settings_file, f'{BRIDGE}filter = "{text}"\n').bridges
    assert bool(bridge.filter) is bool(shown)
    assert str(bridge) == f"orders-to-hub: journal:orders -> hub: exactly-once{shown}"
