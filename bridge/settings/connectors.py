"""`[connectors.NAME]`: the address and credentials of another node or of a Kafka cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict

from bridge import ends
from bridge.runtime import proxies
from bridge.runtime.proxies import Proxy
from bridge.settings import urls
from bridge.settings.end_rules import EndRules
from bridge.settings.fields import Flag, OptionalPath, OptionalToken, PemFile, Table, setting
from bridge.settings.urls import Endpoint


def _url(value: str) -> str:
    scheme = urls.scheme_of(value)
    try:
        rules = ends.kind(scheme)
    except ends.EndUnusable as error:
        raise ValueError(str(error)) from None
    if not isinstance(rules, EndRules):
        raise ValueError(f"the end for {scheme}:// is no EndKind, but a {type(rules).__name__}")
    if rules.is_own:
        raise ValueError(ends.url_rule())
    rules.check_url(value)
    return value


def _proxy(value: str) -> str:
    if value not in ("", proxies.DIRECT):
        try:
            proxies.read_proxy(value)
        except ValueError:
            raise ValueError(f'{proxies.RULE}; or "{proxies.DIRECT}"') from None
    return value


class Kafka(Table):
    """Options of the Kafka client. Further keys: any scalar option of aiokafka, in kebab-case."""

    model_config = ConfigDict(extra="allow")

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.", "PLAINTEXT"
    )
    ssl_cafile: PemFile = setting("PEM file of the brokers' authorities; empty: the system's.", "")
    ssl_certfile: PemFile = setting("PEM file of this client's certificate.", "")
    ssl_keyfile: PemFile = setting("PEM file of its key.", "")
    ssl_password: str = setting("Password of the key file.", "", repr=False)
    ssl_check_hostname: Flag = setting("Whether the broker's certificate must bear its host name.", True)
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = setting(
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.", "PLAIN"
    )
    sasl_plain_username: str = setting("User name of PLAIN and SCRAM.", "")
    sasl_plain_password: str = setting("Password of PLAIN and SCRAM.", "", repr=False)
    sasl_oauth_token_file: OptionalPath = setting(
        "File with the OAUTHBEARER token; read again at each authentication.", ""
    )


class Connector(Table):
    """The address and credentials of an end; bridges refer to it by its name."""

    url: Annotated[str, AfterValidator(_url)] = setting(
        "ws://host:port, wss://host:port, each with the path of a reverse proxy, or kafka://host:port,host:port."
    )
    token: OptionalToken = setting("Bearer token shown to the other node.", "", repr=False)
    ca: PemFile = setting("PEM file of the authorities to trust (wss://); empty: the system's.", "")
    certificate: PemFile = setting(
        "PEM file of this client's certificate, for mutual TLS (wss://); needs key.", ""
    )
    key: PemFile = setting("PEM file of its key.", "")
    server_name: str = setting(
        "Name that the other's certificate must bear (wss://); default: the URL's host.", ""
    )
    proxy: Annotated[str, AfterValidator(_proxy)] = setting(
        "Proxy on the way to the other node: http://, https:// or socks5://user:password@host:port; in user "
        'and password % is written %25. "none": no proxy. Empty: the one that HTTPS_PROXY (wss://), '
        "HTTP_PROXY (ws://) or ALL_PROXY of the environment names, unless NO_PROXY excepts the host.",
        "",
        repr=False,
    )
    compression: Literal["auto", "off", "zstd"] = setting(
        "Batches to the other node: auto compresses them with zstd while the line carries less than 64 Mbit/s"
        " and they shrink, zstd whenever they shrink, off never.",
        "auto",
    )
    identity: str = setting("Kafka: overrides the cluster id in the identities of streams.", "")
    kafka: Kafka | None = setting(
        "Options of the Kafka client. Further keys: any scalar option of aiokafka's consumer or producer, in "
        "kebab-case, except those that the bridge sets itself.",
        None,
    )

    @property
    def scheme(self) -> str:
        """The scheme of its URL: decides which kind of end it leads to (`bridge.ends`)."""
        return urls.scheme_of(self.url)

    @property
    def end_rules(self) -> EndRules:
        """The kind of end that it leads to."""
        found: EndRules = ends.kind(self.scheme)
        return found

    def proxy_to(self, url: str, environ: Mapping[str, str] = os.environ) -> Proxy | None:
        """The proxy on the way to the node at `url`, which is reached as this connector says; None: none.

        Raises: proxies.ProxyInvalid: the variable of the environment that names it does not hold.
        """
        return proxies.proxy_for(self.proxy, url, environ)

    @property
    def endpoint(self) -> Endpoint:
        """Scheme, host and port of a ws:// or wss:// URL."""
        return urls.reaching(self.url)
