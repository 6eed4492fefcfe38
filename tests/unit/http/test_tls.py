"""A listener with TLS, and callers known by their certificate."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest

from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.http.authentication import User
from tests.fakes.store import MemoryStore

NAMES = ("authority", "node", "orders-service", "stranger")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``NAME.pem`` and ``NAME.key`` for each name, signed by the authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificates of this test")
    directory = tmp_path_factory.mktemp("certificates")
    for name in NAMES:
        signer = [] if name == "authority" else ["-CA", "authority.pem", "-CAkey", "authority.key"]
        ca = "TRUE" if name == "authority" else "FALSE"
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        command += [
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            f"basicConstraints=critical,CA:{ca}",
        ]
        subprocess.run(
            [*command, *signer],
            cwd=directory,
            check=True,
            capture_output=True,
        )
    return directory


def server_context(certificates: Path, *, ask: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "authority.pem")
    context.load_cert_chain(certificates / "node.pem", certificates / "node.key")
    context.verify_mode = ssl.CERT_OPTIONAL if ask else ssl.CERT_NONE
    return context


def client_context(certificates: Path, name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates / "authority.pem")
    if name is not None:
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


async def statuses(acceptor: Acceptor, certificates: Path, *names: str | None) -> list[int]:
    bound = await acceptor.start()
    found = []
    try:
        for name in names:
            connector = aiohttp.TCPConnector(ssl=client_context(certificates, name))
            url = f"https://localhost:{bound.port}/v1/addresses/orders/messages"
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.post(url, data=b"x") as response,
            ):
                found.append(response.status)
    finally:
        await acceptor.stop(100)
    return found


async def test_a_certificates_name_gives_its_users_rights(certificates: Path, store: MemoryStore) -> None:
    users = [User("orders", certificate_name="orders-service", send=["orders"])]
    context = server_context(certificates, ask=True)
    acceptor = Acceptor(store, AcceptorOptions(url="wss://127.0.0.1:0", ssl_context=context, users=users))
    assert await statuses(acceptor, certificates, "orders-service", "stranger", None) == [200, 401, 401]


async def test_a_verified_certificate_is_enough_where_no_user_has_one(
    certificates: Path, store: MemoryStore
) -> None:
    context = server_context(certificates, ask=True)
    acceptor = Acceptor(store, AcceptorOptions(url="wss://127.0.0.1:0", ssl_context=context))
    assert await statuses(acceptor, certificates, "stranger", None) == [200, 401]


async def test_tls_alone_asks_for_nothing_on_loopback(certificates: Path, store: MemoryStore) -> None:
    context = server_context(certificates, ask=False)
    acceptor = Acceptor(store, AcceptorOptions(url="wss://127.0.0.1:0", ssl_context=context))
    assert await statuses(acceptor, certificates, None) == [200]
