"""Connections that brokers refuse: what is left of them."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import subprocess
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.kafka.client.diagnosis import Connection
from bridge.kafka.client.errors import NoBroker

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
SASL_AUTHENTICATION_FAILED = 58
#: Kafka's answers by the request's key (version 0; the handshake's 1 has the same).
ANSWERS = {
    API_VERSIONS: struct.pack(
        ">hi9h", 0, 3, SASL_HANDSHAKE, 0, 1, API_VERSIONS, 0, 0, SASL_AUTHENTICATE, 0, 0
    ),
    SASL_HANDSHAKE: struct.pack(">hih5s", 0, 1, 5, b"PLAIN"),
    SASL_AUTHENTICATE: struct.pack(">hhi", SASL_AUTHENTICATION_FAILED, -1, -1),
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that signs itself, with its key in the same file."""
    path = tmp_path_factory.mktemp("broker") / "broker.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    command += ["-days", "2", "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", f"{path}.key", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    path.write_text(Path(f"{path}.key").read_text() + path.read_text())
    return path


@pytest.fixture
def broker(certificate: Path) -> Iterator[str]:
    """A busy one: it refuses every password, and does not get to answering the end of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    over = threading.Event()

    def serve(plain: socket.socket) -> None:
        with context.wrap_socket(plain, server_side=True) as client, client.makefile("rb") as stream:
            for _ in ANSWERS:
                (size,) = struct.unpack(">i", stream.read(4))
                key, _version, number = struct.unpack(">hhi", stream.read(size)[:8])
                answer = struct.pack(">i", number) + ANSWERS[key]
                client.sendall(struct.pack(">i", len(answer)) + answer)
            over.wait()

    def accept(listener: socket.socket) -> None:
        threads: list[threading.Thread] = []
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                break
            threads.append(threading.Thread(target=serve, args=(plain,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def refusal(connect: Callable[[Connection], Coroutine[Any, Any, Any]], connection: Connection) -> str:
    """The refusal's text; the error itself would keep its frames, and the sockets in them."""
    try:
        asyncio.run(connect(connection))
    except NoBroker as error:
        return str(error)
    return ""


@pytest.mark.parametrize("connect", [Connection.connected, Connection.started_consumer])
def test_a_refused_connection_leaves_no_socket_to_the_collector(
    broker: str, certificate: Path, connect: Callable[[Connection], Coroutine[Any, Any, Any]]
) -> None:
    security = {
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(certificate)),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "wrong",
    }
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert "SASL_AUTHENTICATION_FAILED" in refusal(connect, Connection("us", broker, security=security))
        gc.collect()
    assert [str(one.message) for one in found if one.category is ResourceWarning] == []
