"""Certificates' expiry as it is read from PEM files, held against OpenSSL's own words."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from bridge.runtime import certificates
from bridge.runtime.certificates import expiries, issuer
from tests.harness.certificates import certificate_until, make_certificates

pytestmark = pytest.mark.processes


def openssl_says(path: Path) -> float:
    openssl = shutil.which("openssl") or "openssl"
    told = subprocess.run(
        [openssl, "x509", "-enddate", "-noout", "-in", path], capture_output=True, text=True, check=True
    )
    return float(ssl.cert_time_to_seconds(told.stdout.strip().removeprefix("notAfter=")))


@pytest.mark.parametrize("end", ["20491231235959Z", "20500101000000Z", "20011224120000Z", "99991231235959Z"])
def test_expiry_is_what_openssl_reads(tmp_path: Path, end: str) -> None:
    path = certificate_until(tmp_path, "node", end)
    assert expiries(path) == [openssl_says(path)]


def test_each_certificate_of_a_chain_counts_and_what_cannot_be_read_does_not(tmp_path: Path) -> None:
    paths = [certificate_until(tmp_path, str(year), f"{year}0101000000Z") for year in (2040, 2030, 2060)]
    broken = "-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"
    chain = tmp_path / "chain.pem"
    chain.write_text(broken + "".join(path.read_text() for path in paths) + "-----BEGIN CERTIFICATE-----\n")
    assert expiries(chain) == [openssl_says(path) for path in paths]
    chain.write_text(paths[0].read_text() * (certificates.MOST_CERTIFICATES + 1))
    assert expiries(chain) == [], "a bundle"
    assert expiries(tmp_path / "missing.pem") == []


def test_the_issuer_is_what_openssl_reads(tmp_path: Path) -> None:
    [*_, pem] = make_certificates(tmp_path, "node")
    assert issuer(ssl.PEM_cert_to_DER_cert(pem.read_text())) == "CN=authority"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-utf8",
    ]
    made += ["-subj", "/C=DE/O=Prüf GmbH/OU=x/CN=TLS\nInspection", "-keyout", "k.pem", "-out", "c.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    shown = issuer(ssl.PEM_cert_to_DER_cert((tmp_path / "c.pem").read_text()))
    assert shown == "CN=TLS Inspection, O=Prüf GmbH"


@pytest.mark.parametrize("wrong", [b"", b"0", b"0\x80", b"\x30\x03\x02\x01\x01", bytes(200)])
def test_what_is_no_certificate_has_no_issuer(wrong: bytes) -> None:
    assert issuer(wrong) == ""
