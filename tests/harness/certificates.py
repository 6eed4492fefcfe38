"""Certificates made for a test by openssl, and clients that trust them."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def make_certificates(directory: Path, *names: str) -> Iterator[Path]:
    """``NAME.pem`` and ``NAME.key`` in `directory`, for localhost, signed by ``authority.pem``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificates of this test")
    for name in ("authority", *names):
        authority = name == "authority"
        signer = [] if authority else ["-CA", "authority.pem", "-CAkey", "authority.key"]
        constraint = f"basicConstraints=critical,CA:{'TRUE' if authority else 'FALSE'}"
        request = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        request += ["-days", "90", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        request += ["-addext", "subjectAltName=DNS:localhost", "-addext", constraint]
        subprocess.run([*request, *signer], cwd=directory, check=True, capture_output=True)
        yield directory / f"{name}.pem"


def certificate_until(directory: Path, name: str, end: str, start: str = "20000101000000Z") -> Path:
    """``NAME.pem`` and ``NAME.key`` for localhost, signed by itself, valid to `end` (``YYYYMMDDHHMMSSZ``)."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificates of this test")
    pem, key, request = (directory / f"{name}.{suffix}" for suffix in ("pem", "key", "csr"))
    made: list[str | Path] = [
        openssl,
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]
    extensions = directory / f"{name}.ext"
    extensions.write_text("subjectAltName=DNS:localhost\n")
    (directory / f"{name}.index").write_text("")
    (directory / f"{name}.cnf").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={directory / name}.index\nnew_certs_dir={directory}\n"
        "rand_serial=yes\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
    )
    signed: list[str | Path] = [
        openssl,
        "ca",
        "-batch",
        "-selfsign",
        "-config",
        directory / f"{name}.cnf",
        "-keyfile",
        key,
        "-in",
        request,
    ]
    signed += ["-out", pem, "-notext", "-startdate", start, "-enddate", end, "-extfile", extensions]
    for words in ([*made, "-keyout", key, "-out", request], signed):
        subprocess.run(words, cwd=directory, check=True, capture_output=True)
    return pem


def client_tls(directory: Path, name: str | None = None) -> ssl.SSLContext:
    """Trusts the authority; with `name`, shows that certificate."""
    context = ssl.create_default_context(cafile=directory / "authority.pem")
    if name is not None:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    return context
