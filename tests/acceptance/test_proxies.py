"""Real proxies between nodes, tinyproxy, microsocks, nginx and HAProxy: what passes, and what is said."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from bridge.demo.ports import free_ports
from tests.harness.certificates import client_tls, make_certificates
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together
from tests.harness.watchdog import WATCHDOG

ROOT: Final = Path(__file__).parents[2]
HOST: Final = "127.0.0.1"
USER, PASSWORD = "shop-7", "s3cret"


@contextmanager
def running(name: str, *arguments: str | Path, port: int) -> Iterator[int]:
    """A program of the system, once it listens at its port."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed (Debian and Ubuntu: apt install {name})")
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    WATCHDOG.watch(process.pid)
    try:
        eventually(lambda: process.poll() is not None or listens(port), f"{name} listens")
        assert process.poll() is None, f"{name} has ended with {process.returncode}"
        yield port
    finally:
        process.terminate()
        process.wait()


def listens(port: int) -> bool:
    with socket.create_connection((HOST, port), 1):
        return True


@contextmanager
def tinyproxy(directory: Path, *rules: str) -> Iterator[int]:
    [port] = free_ports(1)
    file = directory / "tinyproxy.conf"
    file.write_text("\n".join((f"Port {port}", f"Listen {HOST}", "MaxClients 20", "Timeout 60", *rules, "")))
    with running("tinyproxy", "-d", "-c", file, port=port):
        yield port


@contextmanager
def microsocks(*options: str) -> Iterator[int]:
    [port] = free_ports(1)
    with running("microsocks", "-i", HOST, "-p", str(port), *options, port=port):
        yield port


def edge_of(make_node: MakeNode, hub: Node, **keys: str) -> Node:
    quoted = {f"connector__{key}": f'"{value}"' for key, value in keys.items()}
    return make_node("edge", rest=bridge_to(hub, **quoted))


def arrives(edge: Node, hub: Node) -> None:
    edge.api.send("orders", b"over the proxy")
    eventually(lambda: [one["body"] for one in hub.api.browse("orders")] == ["over the proxy"], "it arrives")


def reason(edge: Node) -> str:
    said: str = eventually(
        lambda: edge.ops.get("/v1/status").json["bridges"][0]["reason"], "the bridge says why"
    )
    return said


def logged(edge: Node, event: str) -> dict[str, object]:
    return edge.event(event)


# ---------------------------------------------------------------------- on the way out


def test_a_link_goes_through_tinyproxy_which_log_and_status_name(make_node: MakeNode, tmp_path: Path) -> None:
    hub = make_node("hub")
    with tinyproxy(tmp_path, f"BasicAuth {USER} {PASSWORD}", f"ConnectPort {hub.port}") as port:
        edge = edge_of(make_node, hub, proxy=f"http://{USER}:${{PROXY_PASSWORD}}@{HOST}:{port}")
        edge.variables["PROXY_PASSWORD"] = PASSWORD
        start_together(hub, edge)
        arrives(edge, hub)
        named = f"http://{HOST}:{port} (proxy)"
        assert logged(edge, "bridge-started")["proxy"] == named
        assert edge.ops.get("/v1/status").json["bridges"][0]["proxy"] == named
        shown = command("status", "--operations", f"http://{HOST}:{edge.operations_port}").out
        assert f"journal:orders -> hub through {named} sent 1" in shown
        assert PASSWORD not in edge.log.read_text() + shown


def test_what_tinyproxy_refuses_is_said(make_node: MakeNode, tmp_path: Path) -> None:
    hub = make_node("hub").start()
    rules = (f"BasicAuth {USER} {PASSWORD}", "ConnectPort 443")
    with tinyproxy(tmp_path, *rules) as port:
        edge = edge_of(make_node, hub, proxy=f"http://{HOST}:{port}").start_listening()
        assert "wants user and password (HTTP 407" in reason(edge)
        edge.stop()
        edge = make_node(
            "other", rest=bridge_to(hub, connector__proxy=f'"http://{USER}:{PASSWORD}@{HOST}:{port}"')
        ).start_listening()
        said = reason(edge)
    assert "its rules must allow CONNECT to this host and port (HTTP 403" in said
    assert PASSWORD not in said


def test_a_link_with_tls_goes_through_microsocks(make_node: MakeNode, tmp_path: Path) -> None:
    [*_] = make_certificates(tmp_path, "hub")
    keys = f'certificate = "{tmp_path}/hub.pem"\nkey = "{tmp_path}/hub.key"\n'
    hub = make_node("hub", scheme="wss", acceptor=keys, tls=client_tls(tmp_path))
    with microsocks("-u", USER, "-P", PASSWORD) as port:
        proxy, ca = f"socks5://{USER}:{PASSWORD}@{HOST}:{port}", f"{tmp_path}/authority.pem"
        edge = edge_of(make_node, hub, proxy=proxy, ca=ca)
        start_together(hub, edge)
        arrives(edge, hub)


def test_what_microsocks_refuses_is_said(make_node: MakeNode) -> None:
    hub = make_node("hub")
    with microsocks("-u", USER, "-P", PASSWORD) as port:
        wrong = edge_of(make_node, hub, proxy=f"socks5://{USER}:wr0ng@{HOST}:{port}").start_listening()
        assert "refused user and password" in reason(wrong)
        wrong.stop()
        away = make_node(
            "other", rest=bridge_to(hub, connector__proxy=f'"socks5://{USER}:{PASSWORD}@{HOST}:{port}"')
        ).start_listening()
        assert "the host refuses the connection (SOCKS reply 5)" in reason(away)


def test_the_environment_names_the_proxy_of_a_node(make_node: MakeNode) -> None:
    """And what the proxy of a name is for: nothing on this machine knows the hub's."""
    hub = make_node("hub")
    with microsocks() as port:
        edge = edge_of(make_node, hub, url=f"ws://hub.invalid:{hub.port}")
        edge.variables |= {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": f"socks5://{HOST}:{port}"}
        edge.start_listening()
        assert logged(edge, "bridge-started")["proxy"] == f"socks5://{HOST}:{port} (HTTP_PROXY)"
        assert f"the proxy socks5://{HOST}:{port} (HTTP_PROXY), asked for hub.invalid:{hub.port}" in reason(
            edge
        )
        edge.stop()
        edge.variables["NO_PROXY"] = ".invalid"
        edge.start_listening()
        assert "the host in url does not resolve" in reason(edge)


def test_a_variable_that_names_no_proxy_keeps_a_node_from_starting(make_node: MakeNode) -> None:
    edge = make_node("edge", rest='[connectors.hub]\nurl = "wss://hub.invalid:1"\n')
    edge.write()
    edge.variables["HTTPS_PROXY"] = f"gopher://me:{PASSWORD}@proxy"
    ended = edge.run_to_its_end()
    assert ended.code == 2
    assert "connectors.hub.proxy: HTTPS_PROXY of the environment must be http://host:port" in ended.err
    assert PASSWORD not in ended.err


# ---------------------------------------------------------------------- in front of a hub


def tried(server: str) -> str:
    """The configuration of docs/proxies.md."""
    text = (ROOT / "docs" / "proxies.md").read_text("utf-8")
    found = re.search(rf"<!-- tried: {server} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def fitted(server: str, hub: Node, port: int, directory: Path) -> str:
    """The same for these ports and certificates."""
    text = tried(server)
    listen = {"nginx": "listen 443", "haproxy": "bind :443"}[server]
    for written, here in (
        ("127.0.0.1:61616", f"{HOST}:{hub.port}"),
        (listen, f"{listen.split()[0]} {HOST}:{port}"),
        ("/etc/ssl", str(directory)),
    ):
        assert written in text
        text = text.replace(written, here)
    return text


@contextmanager
def nginx(hub: Node, directory: Path) -> Iterator[int]:
    [port] = free_ports(1)
    paths = "".join(
        f"{kind}_temp_path {directory / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    file = directory / "nginx.conf"
    file.write_text(
        f"{user}daemon off;\nmaster_process off;\npid {directory}/nginx.pid;\n"
        f"error_log {directory}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{fitted('nginx', hub, port, directory)}}}\n"
    )
    with running("nginx", "-p", directory, "-c", file, port=port):
        yield port


@contextmanager
def haproxy(hub: Node, directory: Path) -> Iterator[int]:
    [port] = free_ports(1)
    pair = directory / "hub-and-key.pem"
    pair.write_text((directory / "hub.pem").read_text() + (directory / "hub.key").read_text())
    file = directory / "haproxy.cfg"
    file.write_text(fitted("haproxy", hub, port, directory))
    with running("haproxy", "-db", "-f", file, port=port):
        yield port


@pytest.mark.parametrize("server", [nginx, haproxy], ids=["nginx", "haproxy"])
def test_a_hub_is_behind_a_reverse_proxy_as_the_document_says(
    make_node: MakeNode, tmp_path: Path, server: Callable[[Node, Path], AbstractContextManager[int]]
) -> None:
    """TLS and the path end there; a wrong path, and a hub that is away behind it, are said."""
    [*_] = make_certificates(tmp_path, "hub")
    hub = make_node("hub").start()
    with server(hub, tmp_path) as port:
        url = f"wss://localhost:{port}/relay"
        edge = edge_of(make_node, hub, url=url, ca=str(tmp_path / "authority.pem")).start()
        arrives(edge, hub)
        big = b"x" * (3 * 1024 * 1024)
        edge.api.send("orders", big)
        eventually(lambda: len(hub.api.browse("orders")) == 2, "the large one arrives")
        hub.stop()
        eventually(lambda: "it answered with a web page (HTTP 50" in reason(edge), "the hub is away")
        hub.start()
        edge.api.send("orders", b"after")
        eventually(lambda: len(hub.api.browse("orders")) == 3, "it goes on")
        edge.stop()
        wrong = make_node(
            "other",
            rest=bridge_to(
                hub, connector__url=f'"{url}/elsewhere"', connector__ca=f'"{tmp_path}/authority.pem"'
            ),
        ).start_listening()
        assert "HTTP 404" in reason(wrong)
