"""The security of a Kafka connection: TLS contexts, passwords, and a token that is read anew each time.

No secret is ever part of an error: texts name the setting and the file.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import aiokafka.conn
from aiokafka.abc import AbstractTokenProvider

from bridge.errors import BridgeError
from bridge.kafka.client.errors import TokenRefused, TokenUnusable
from bridge.settings.connectors import Kafka

#: Longest token; a longer file holds none.
MAX_TOKEN_BYTES: Final = 64 * 1024
#: Most bytes of a broker's reason for refusing a token that an error shows.
MAX_CHALLENGE_BYTES: Final = 500


class SecurityUnusable(BridgeError):
    """A certificate, key or authority of a connector cannot be used."""

    code = "SECURITY_UNUSABLE"


def security_options(name: str, kafka: Kafka) -> dict[str, Any]:
    """Keyword arguments of every client: protocol, TLS, credentials.

    Raises:
        SecurityUnusable: a certificate or key that cannot be used. `name` is the connector's.
    """
    protocol = kafka.security_protocol
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(name, kafka)
    if protocol.startswith("SASL_"):
        options["sasl_mechanism"] = kafka.sasl_mechanism
        if kafka.sasl_mechanism == "OAUTHBEARER":
            assert kafka.sasl_oauth_token_file is not None, "the settings require it"
            options["sasl_oauth_token_provider"] = TokenFile(kafka.sasl_oauth_token_file)
        else:
            options["sasl_plain_username"] = kafka.sasl_plain_username
            options["sasl_plain_password"] = kafka.sasl_plain_password
    return options


def ssl_context(name: str, kafka: Kafka) -> ssl.SSLContext:
    """The TLS context: the authorities (the system's where `ssl-cafile` is empty) and the certificate.

    Raises:
        SecurityUnusable: names the setting and its file.
    """
    try:
        context = ssl.create_default_context(cafile=kafka.ssl_cafile)
    except (OSError, ValueError) as error:
        raise _unusable(name, "ssl-cafile", kafka.ssl_cafile, "certificates in PEM", error) from None
    context.check_hostname = kafka.ssl_check_hostname
    if kafka.ssl_certfile is None:
        return context
    try:
        # A password that is never asked for does no harm; without one OpenSSL would ask the terminal.
        context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile, lambda: kafka.ssl_password)
    except (OSError, ValueError) as error:
        wanted = "a key in PEM that belongs to ssl-certfile and opens with ssl-password"
        raise _unusable(name, "ssl-keyfile", kafka.ssl_keyfile or kafka.ssl_certfile, wanted, error) from None
    return context


def _unusable(name: str, key: str, path: Path | None, wanted: str, error: Exception) -> SecurityUnusable:
    setting = f"connectors.{name}.kafka.{key}"
    reason = (error.reason if isinstance(error, ssl.SSLError) else None) or str(error)
    return SecurityUnusable(f"{setting}: {path} must hold {wanted} ({reason})", key=setting)


class TokenFile(AbstractTokenProvider):
    """The OAUTHBEARER token in a file, read at each authentication: to renew the token, write the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    async def token(self) -> str:
        """The token, without the white space around it.

        Raises:
            TokenUnusable: the file cannot be read, or holds nothing that could be a token.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_TOKEN_BYTES + 1)
        except OSError as error:
            raise TokenUnusable(f"sasl-oauth-token-file: {self._path}: {error.strerror}") from None
        token = content.strip()
        if not token:
            raise TokenUnusable(f"sasl-oauth-token-file: {self._path} is empty")
        if len(content) > MAX_TOKEN_BYTES or not token.isascii() or any(byte <= 0x20 for byte in token):
            rule = f"must hold one token of at most {MAX_TOKEN_BYTES} visible ASCII characters"
            raise TokenUnusable(f"sasl-oauth-token-file: {self._path} {rule}")
        return token.decode("ascii")


class _Authenticator(aiokafka.conn.OAuthAuthenticator):
    """aiokafka's authenticator takes every answer for a success; this one does not.

    A broker that does not take the token says so in a challenge (RFC 7628, section 3.2.2). If the client
    ignores it, the broker answers the next request with a cluster without brokers, and the client waits for
    ever.
    """

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if payload:
            reason = payload[:MAX_CHALLENGE_BYTES].decode("utf-8", "backslashreplace")
            raise TokenRefused(f"the broker did not take the token ({reason}); see sasl-oauth-token-file")
        answer: tuple[bytes, bool] | None = await super().step(payload)
        return answer


aiokafka.conn.OAuthAuthenticator = _Authenticator
