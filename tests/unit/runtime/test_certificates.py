"""Certificates' expiry as it is read from PEM files, held against OpenSSL's own words."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from bridge.runtime import certificates
from bridge.runtime.certificates import expiries
from tests.harness.certificates import certificate_until

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
