"""Certificates, keys and tokens: files that do not fit, links that cannot be opened, and rotation.

All on real nodes: what `validate` and `run` say, what the status of a bridge says, and what a node does when
a file changes under it.
"""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.demo.ports import free_ports
from tests.harness.api import HOST, Api
from tests.harness.certificates import certificate_until, client_tls, make_certificates
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

ACCEPTOR = 'certificate = "{0}/node.pem"\nkey = "{0}/node.key"\n'
USER = '[[acceptor.users]]\nname = "edge"\ntoken = "{}"\nlink = {}\nsend = ["#"]\n'
RIGHT = "a" * 20
#: X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python's ssl has no name for.
NO_CHECK_TIME = 0x200000


# ------------------------------------------------------------------ files that do not fit


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Path:
    """Of `certificates`, and ``locked.key``, ``text.pem`` and ``empty.pem``, which serve for nothing."""
    directory = tmp_path_factory.mktemp("files")
    shutil.copytree(certificates, directory, dirs_exist_ok=True)
    lock = ["openssl", "pkcs8", "-topk8", "-in", "node.key", "-out", "locked.key", "-passout", "pass:s3cret"]
    subprocess.run(lock, cwd=directory, check=True, capture_output=True)
    (directory / "text.pem").write_text("no certificate\n")
    (directory / "empty.pem").write_text("")
    return directory


def connector_table(name: str, url: str, **keys: str) -> str:
    """TOML of a connector."""
    table = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    return f'[connectors.{name}]\nurl = "{url}"\n{table}'


WRONG_KEY = "must be the private key of the certificate in node.pem"
LOCKED = "must be a private key that is not encrypted"
NO_KEY = r"must be a PEM file of the private key \(.+\)"
OPENS = "must be a private key that the password opens"
NO_CERTIFICATES = r"must be a PEM file of certificates \(.+\)"


def test_files_that_do_not_fit_are_named_by_validate_and_run(files: Path) -> None:
    """All at once, before anything is opened, and without a question on a terminal."""
    cases = [
        ("hub-1", "key", "stranger.key", WRONG_KEY),
        ("hub-2", "key", "locked.key", LOCKED),
        ("hub-3", "key", "text.pem", NO_KEY),
        ("hub-4", "certificate", "text.pem", NO_CERTIFICATES),
        ("hub-5", "certificate", "node.key", NO_CERTIFICATES),
        ("hub-6", "certificate", "empty.pem", NO_CERTIFICATES),
        ("hub-7", "ca", "text.pem", NO_CERTIFICATES),
    ]
    text = f'[acceptor]\nurl = "wss://{HOST}:0"\ncertificate = "node.pem"\nkey = "stranger.key"\n'
    text += 'client-ca = "text.pem"\n'
    expected = [
        ("acceptor.client-ca", "text.pem", NO_CERTIFICATES),
        ("acceptor.key", "stranger.key", WRONG_KEY),
    ]
    for name, key, file, rule in cases:
        keys = {"certificate": "node.pem", "key": "node.key", key: file}
        text += connector_table(name, "wss://hub:61616", **keys)
        expected.append((f"connectors.{name}.{key}", file, rule))
    text += connector_table("us", "kafka://b:9092") + '[connectors.us.kafka]\nsecurity-protocol = "SSL"\n'
    text += 'ssl-certfile = "node.pem"\nssl-keyfile = "locked.key"\nssl-password = "wr0ng"\n'
    text += 'ssl-cafile = "empty.pem"\n'
    expected.append(("connectors.us.kafka.ssl-keyfile", "locked.key", OPENS))
    expected.append(("connectors.us.kafka.ssl-cafile", "empty.pem", NO_CERTIFICATES))
    (files / "settings.toml").write_text(text)
    for ended in (command("validate", cwd=files), command("run", cwd=files)):
        assert (ended.code, ended.out) == (2, "")
        *lines, number = ended.err.splitlines()
        assert number == f"{len(expected)} problems"
        for (place, file, rule), line in zip(sorted(expected), sorted(lines), strict=True):
            line_of = f'settings.toml: {re.escape(place)}: {rule}; found "{re.escape(file)}"'
            assert re.fullmatch(line_of, line), line
        assert "wr0ng" not in ended.err
    right = text.replace("wr0ng", "s3cret").replace('ssl-cafile = "empty.pem"\n', "")
    right = re.sub(r"(?s)\[acceptor\].*(?=\[connectors.us\])", "", right)
    (files / "settings.toml").write_text(right)
    assert command("validate", cwd=files).code == 0


# ------------------------------------------------------------------ links that cannot be opened


def trouble(edge: Node, bridge: str, sentence: str = "") -> str:
    """What the status says of a bridge that does not get on, once it has this sentence in it."""

    def reason() -> str:
        bridges = edge.ops.get("/v1/status").json["bridges"]
        (found,) = [each for each in bridges if each["name"] == bridge]
        assert found["state"] != "FAILED", found
        reason = str(found["reason"] or "")
        return reason if sentence in reason else ""

    return str(eventually(reason, f"{bridge} says what keeps it"))


def connector(name: str, url: str, **keys: str) -> str:
    bridge = f'[[bridges]]\nname = "to-{name}"\nqueue-name = "orders"\nstatic-connectors = ["{name}"]\n'
    return f"{connector_table(name, url, **keys)}{bridge}retry-interval = 100\n"


def test_what_keeps_a_link_from_being_opened_is_a_plain_sentence(
    make_node: MakeNode, certificates: Path
) -> None:
    """In the status and in the log, with the connector and the setting that mends it; never FAILED."""
    ca = f"{certificates}/authority.pem"
    tls = make_node("tls", scheme="wss", acceptor=ACCEPTOR.format(certificates), tls=client_tls(certificates))
    users = USER.format(RIGHT, "false")
    plain = make_node("plain", acceptor=f'tokens = ["{"b" * 20}"]\n{users}', token="b" * 20)
    start_together(tls, plain)
    (free,) = free_ports(1)
    url = f"wss://localhost:{tls.port}"
    expected = {
        "ca": (connector("ca", url), "the node's certificate is not trusted (", "see ca"),
        "name": (
            connector("name", f"wss://127.0.0.1:{tls.port}", ca=ca),
            "the node's certificate is for another name (",
            "server-name",
        ),
        "plain": (
            connector("plain", f"ws://localhost:{tls.port}"),
            "the port does not answer HTTP",
            "reached with wss:// in url",
        ),
        "tls": (
            connector("tls", f"wss://localhost:{plain.port}", ca=ca),
            "the port speaks no TLS (",
            "reached with ws:// in url",
        ),
        "right": (
            connector("right", f"ws://localhost:{plain.port}", token=RIGHT),
            "refused the credentials (HTTP 403): FORBIDDEN: edge may not open a node link",
            "acceptor.users",
        ),
        "token": (
            connector("token", f"ws://localhost:{plain.port}", token="wr0ng"),
            "refused the credentials (HTTP 401): UNAUTHENTICATED: the bearer token is not known here",
            "see token",
        ),
        "port": (connector("port", f"ws://localhost:{free}"), "connection refused", "nothing listens"),
        "host": (connector("host", "ws://no-such-host.invalid:1"), "the host in url does not resolve (", ""),
    }
    edge = make_node("edge", rest="".join(text for text, *_ in expected.values())).start()
    for name, (_, sentence, hint) in expected.items():
        reason = trouble(edge, f"to-{name}")
        assert reason.startswith(f"TARGET_UNAVAILABLE: connector {name}: ws"), reason
        assert sentence in reason, reason
        assert hint in reason, reason
        edge.event("bridge-disconnected", bridge=f"to-{name}", reason=reason)
    assert edge.ops.get("/ready").status == 200
    assert not edge.events("bridge-failed")
    assert "wr0ng" not in edge.log.read_text()


# ------------------------------------------------------------------ certificates that expire


def test_a_certificate_that_has_expired_is_refused_by_validate_and_reload_and_named_where_it_is(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """The node starts all the same: it stores messages, and says at which end the certificate is."""
    expired = certificate_until(tmp_path, "expired", "20260101000000Z")
    key = expired.with_suffix(".key")
    trusting = ssl.create_default_context(cafile=expired)
    trusting.verify_flags |= NO_CHECK_TIME
    keys = f'certificate = "{expired}"\nkey = "{key}"\n'
    hub = make_node("hub", scheme="wss", acceptor=keys, tls=trusting)
    edge = make_node("edge", rest=connector("hub", hub.url, ca=str(expired)))
    start_together(hub, edge)
    assert trouble(edge, "to-hub", "valid now").endswith(
        "is not valid now (certificate has expired); renew it at that node, or set the clocks"
    )
    rule = "must be valid: it expired at 2026-01-01T00:00:00.000Z"
    line = f'{hub.file}: acceptor.certificate: {rule}; found "{expired}"'
    ended = command("validate", "--settings", str(hub.file))
    assert (ended.code, ended.err.splitlines()) == (2, [line, "1 problem"])
    ended = command("reload", "--settings", str(hub.file))
    assert ended.code != 0
    assert "it expired at 2026-01-01T00:00:00.000Z" in ended.err
    event = hub.event("certificate-expires", setting="acceptor.certificate", level="error")
    assert event["expires"] == "2026-01-01T00:00:00.000Z"
    edge.event("certificate-expires", setting="connectors.hub.ca", level="error")
    assert hub.metrics()['core_bridge_certificate_expires_seconds{setting="acceptor.certificate"}'] < 0


def test_a_certificate_that_expires_soon_is_a_line_of_validate_and_of_the_log(
    make_node: MakeNode, tmp_path: Path
) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=10, minutes=1)
    soon = certificate_until(tmp_path, "soon", f"{end:%Y%m%d%H%M%SZ}")
    keys = f'certificate = "{soon}"\nkey = "{soon.with_suffix(".key")}"\n'
    node = make_node(scheme="wss", acceptor=keys, tls=ssl.create_default_context(cafile=soon)).start()
    ended = command("validate", "--settings", str(node.file))
    when = f"{end:%Y-%m-%dT%H:%M:%S}.000Z, in 10 days; renew it"
    assert (ended.code, ended.err) == (0, f"{node.file}: acceptor.certificate: expires at {when}\n")
    assert ended.out == f"{node.file}: ok\n"
    event = node.event("certificate-expires", setting="acceptor.certificate", level="warning")
    assert event["days"] == 10
    left_s = node.metrics()['core_bridge_certificate_expires_seconds{setting="acceptor.certificate"}']
    assert 9 * 24 * 3600 < left_s <= 10 * 24 * 3600 + 60


# ------------------------------------------------------------------ rotation


def replace(path: Path, text: str) -> None:
    """As a person or a mounted secret does it: at once."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def arrived(hub: Node, *bodies: str) -> None:
    eventually(lambda: hub.api.bodies("orders") == list(bodies), f"{bodies} are at the hub")


def test_a_refused_token_is_tried_again_and_rotated_at_either_end(make_node: MakeNode) -> None:
    """R26. No restart, nothing lost: the bridge waits, and says why, until both ends know the same token."""
    token = "${file:hub-token}"
    hub = make_node("hub", acceptor=f'tokens = ["{"b" * 20}"]\n' + USER.format(token, "true"), token="b" * 20)
    edge = make_node("edge")
    for name in ("hub", "edge"):
        (hub.directory / f"{name}-token").write_text("first-secret\n")
    edge.rest = bridge_to(hub, connector__token='"${file:edge-token}"')
    start_together(hub, edge)
    edge.await_state("orders-to-hub", "RUNNING")
    edge.api.send("orders", b"a")
    arrived(hub, "a")

    replace(hub.directory / "hub-token", "second-secret\n")
    assert hub.event("credentials-reloaded")["settings"] == ["acceptor.users[0].token"]
    # The link that the old token opened ends, and the old token opens none.
    trouble(edge, "orders-to-hub", "refused the credentials (HTTP 401)")
    edge.api.send("orders", b"b")
    assert edge.ops.get("/ready").status == 200
    replace(hub.directory / "edge-token", "second-secret\n")
    assert edge.event("credentials-reloaded")["settings"] == ["connectors.hub.token"]
    arrived(hub, "a", "b")
    edge.await_state("orders-to-hub", "RUNNING")

    for log in (hub.log, edge.log):
        assert "-secret" not in log.read_text()
    assert not edge.events("bridge-failed")


def test_a_token_that_another_still_has_keeps_its_links(make_node: MakeNode) -> None:
    """Only what an old token opened ends; and operations follow their file as well."""
    lists = 'tokens = ["${file:one}", "${file:two}"]\n'
    hub = make_node("hub", acceptor=lists, operations='tokens = ["${file:operator}"]\n', token="two-secret")
    for name in ("one", "two", "operator"):
        (hub.directory / name).write_text(f"{name}-secret")
    edge = make_node("edge", rest=bridge_to(hub, connector__token='"two-secret"'))
    start_together(hub, edge)
    edge.await_state("orders-to-hub", "RUNNING")
    replace(hub.directory / "one", "one-rotated")
    replace(hub.directory / "operator", "operator-rotated")
    eventually(
        lambda: (
            {key for event in hub.events("credentials-reloaded") for key in event["settings"]}
            == {"acceptor.tokens[0]", "operations.tokens[0]"}
        ),
        "both are read again",
    )
    assert Api(hub.port, "one-secret").get("/v1/addresses").status == 401
    assert Api(hub.port, "one-rotated").get("/v1/addresses").status == 200
    assert Api(hub.operations_port, "operator-secret").get("/v1/status").status == 401
    assert Api(hub.operations_port, "operator-rotated").get("/v1/status").status == 200
    edge.api.send("orders", b"a")
    arrived(hub, "a")
    ended = [event for event in edge.events("bridge-disconnected") if "STOPPING" in event["reason"]]
    assert not ended, "its token is still one"


def test_a_token_file_that_holds_no_token_changes_nothing(make_node: MakeNode) -> None:
    node = make_node(acceptor='tokens = ["${file:token}"]\n', token="first-secret")
    (node.directory / "token").write_text("first-secret")
    node.start()
    replace(node.directory / "token", "")
    assert node.event("credentials-unusable")["reason"] == "acceptor.tokens[0]: must not be empty"
    assert node.api.get("/v1/addresses").status == 200
    replace(node.directory / "token", "second-secret")
    node.event("credentials-reloaded")
    node.api.get("/v1/addresses").is_problem(401, "UNAUTHENTICATED")


def copied(source: Path, target: Path, *names: str) -> None:
    for name in names:
        beside = target / f"{name}.new"
        shutil.copy(source / name, beside)
        beside.replace(target / name)


def serial(node: Node, tls: ssl.SSLContext) -> str:
    """Which certificate the node shows."""
    connection: Any = Api(node.port, "", tls, "localhost").connect()
    connection.connect()
    try:
        return str(connection.sock.getpeercert()["serialNumber"])
    finally:
        connection.close()


def test_certificates_are_rotated_without_a_restart(make_node: MakeNode, tmp_path: Path) -> None:
    """The acceptor's own and its authorities, and a link client's; a pair that does not fit waits."""
    for turn in ("now", "old", "new"):
        (tmp_path / turn).mkdir()
    pem, old, new = tmp_path / "now", tmp_path / "old", tmp_path / "new"
    for directory in (old, new):
        assert list(make_certificates(directory, "node", "edge"))
    everything = ("authority.pem", "node.pem", "node.key", "edge.pem", "edge.key")
    copied(old, pem, *everything)
    user = '[[acceptor.users]]\nname = "edge"\ncertificate-name = "edge"\nlink = true\nsend = ["#"]\n'
    acceptor = f'{ACCEPTOR.format(pem)}client-ca = "{pem}/authority.pem"\ntokens = ["root-secret"]\n{user}'
    hub = make_node("hub", scheme="wss", acceptor=acceptor, tls=client_tls(old), token="root-secret")
    keys = {"ca": "authority.pem", "certificate": "edge.pem", "key": "edge.key"}
    edge = make_node(
        "edge", rest=bridge_to(hub, **{f"connector__{key}": f'"{pem}/{name}"' for key, name in keys.items()})
    )
    start_together(hub, edge)
    edge.await_state("orders-to-hub", "RUNNING")
    before = serial(hub, client_tls(old))

    copied(new, pem, "node.pem")  # its key is still to come
    wrong = "acceptor.key: must be the private key of the certificate in node.pem"
    assert hub.event("credentials-unusable")["reason"] == wrong
    assert serial(hub, client_tls(old)) == before
    edge.api.send("orders", b"a")
    arrived(hub, "a")

    copied(new, pem, *everything)
    hub.event("credentials-reloaded", settings=["acceptor"])
    edge.event("credentials-reloaded", settings=["connectors.hub"])
    hub.tls = client_tls(new)
    assert serial(hub, client_tls(new)) != before
    with pytest.raises(ssl.SSLError):
        Api(hub.port, "", client_tls(old), "localhost").get("/v1/addresses")
    edge.api.send("orders", b"b")
    arrived(hub, "a", "b")
    edge.event("bridge-disconnected")  # the link of the old certificate has ended
    edge.await_state("orders-to-hub", "RUNNING")
