"""Reads the certificate that a host presents and that is not trusted, for the error about it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from bridge.runtime.certificates import issuer
from bridge.runtime.proxies import Proxy
from bridge.runtime.tunnels import ProxyFailed, Tunnel

#: Longest time to read it, in seconds.
READ_S: Final = 5.0


async def presented_issuer(
    host: str, port: int, name: str, proxy: Proxy | None, tls: ssl.SSLContext | None
) -> str:
    """The issuer of the certificate that the host presents for `name`; empty: it cannot be read.

    Nothing is sent over this connection. `tls`: of an https:// proxy.
    """
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(READ_S):
            if proxy is None:
                transport, _ = await loop.create_connection(
                    asyncio.Protocol, host, port, ssl=unchecked, server_hostname=name
                )
            else:
                tunnel = await Tunnel(proxy, tls).open(host, port)
                transport = tunnel
                transport = await loop.start_tls(tunnel, asyncio.Protocol(), unchecked, server_hostname=name)
        shown = transport.get_extra_info("ssl_object") if transport is not None else None
        return issuer(shown.getpeercert(binary_form=True) or b"") if shown is not None else ""
    except (OSError, ProxyFailed, TimeoutError):
        return ""
    finally:
        if transport is not None:
            transport.abort()
