"""aiohttp's connections to nodes through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import aiohttp

from bridge.runtime.proxies import Proxy
from bridge.runtime.tunnels import Tunnel

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.tracing import Trace


class TunnelConnector(aiohttp.BaseConnector):
    """Opens each connection through one proxy, for ``ws`` and ``http``, too (RFC 6455, section 4.1).

    aiohttp's own proxies are asked for a tunnel for ``wss`` and ``https`` only, and speak no SOCKS.
    """

    allowed_protocol_schema_set = aiohttp.TCPConnector.allowed_protocol_schema_set

    def __init__(
        self, proxy: Proxy, tls: ssl.SSLContext | None, server_hostname: str | None = None, limit: int = 0
    ) -> None:
        """`tls`: of https:// and wss:// nodes, and of an https:// proxy; None: the system's authorities.
        `server_hostname`: checked in the node's certificate; None: the URL's host. `limit`: most connections;
        0: no limit.
        """
        super().__init__(limit=limit)
        self._proxy = proxy
        self._tls = tls
        self._server_hostname = server_hostname
        #: The place that has not answered yet at the last attempt; empty: the node behind the proxy.
        self.waits_for = ""

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],  # noqa: ARG002 - nothing traces it
        timeout: aiohttp.ClientTimeout,  # noqa: ARG002, ASYNC109 - the whole attempt has one
    ) -> ResponseHandler:
        """Implements BaseConnector's. Raises: ProxyFailed; OSError, as ssl.SSLError too: the node's TLS."""
        host, port = req.url.raw_host, req.port
        assert host is not None
        assert port is not None
        tunnel = Tunnel(self._proxy, self._tls)
        self.waits_for = tunnel.waits_for
        transport = await tunnel.open(host, port)
        self.waits_for = tunnel.waits_for
        protocol = self._factory()
        try:
            if req.is_ssl():
                tls, name = self._tls or ssl.create_default_context(), self._server_hostname or host
                secured = await asyncio.get_running_loop().start_tls(
                    transport, protocol, tls, server_hostname=name
                )
                if secured is None:
                    raise ConnectionResetError("the connection was closed during the TLS handshake")
            else:
                transport.set_protocol(protocol)
                secured = transport
        except BaseException:
            transport.abort()
            raise
        protocol.connection_made(secured)
        secured.resume_reading()
        return protocol
