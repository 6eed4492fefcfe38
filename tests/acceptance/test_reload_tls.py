"""Certificates, keys and authorities that change by a reload, and in their files, while bridges relay."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.acceptance.test_reload import (
    Stream,
    all_arrive_once,
    await_links,
    links,
    outcome,
    reload,
    unchanged,
)
from tests.harness.certificates import client_tls, make_certificates
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

#: Messages of each address that arrive between two changes.
FLOWING: Final = 10
#: TOML of a user that is known by its certificate.
USER: Final = '[[acceptor.users]]\nname = "edge"\ncertificate-name = "edge"\nlink = true\nsend = ["#"]\n'
#: The files that a node or a bridge shows.
PAIRS: Final = ("node.pem", "node.key", "edge.pem", "edge.key")


def edge_of(hub: Node, authority: Path, certificate: Path) -> str:
    """TOML of two bridges to the hub: a's link has this certificate, b's a token."""
    keys = {"certificate": certificate.with_suffix(".pem"), "key": certificate.with_suffix(".key")}
    by_certificate = {f"connector__{key}": f'"{path}"' for key, path in ({"ca": authority} | keys).items()}
    trusted = hub.directory / "now" / "authority.pem"
    return bridge_to(hub, "a-to-hub", '"a"', "by-certificate", **by_certificate) + bridge_to(
        hub, "b-to-hub", '"b"', "by-token", connector__ca=f'"{trusted}"', connector__token='"root-secret"'
    )


def copied(source: Path, target: Path) -> None:
    """Put a file there at once."""
    beside = target.with_name(f"{target.name}.new")
    beside.write_bytes(source.read_bytes())
    beside.replace(target)


def flows(stream: Stream, hub: Node) -> None:
    """Wait until more messages of both addresses have arrived."""
    sent = dict(stream.sent)
    eventually(lambda: all(stream.sent[one] > sent[one] + FLOWING for one in sent), "messages are sent")
    eventually(
        lambda: all(hub.api.get(f"/v1/addresses/{one}").json["next"] > sent[one] for one in sent),
        "they arrive",
    )


def test_tls_changes_by_a_reload_and_in_its_files_while_bridges_relay(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """O1. The link that has none of what changed stays open throughout."""
    now, old, new, other = (tmp_path / name for name in ("now", "old", "new", "other"))
    for directory in (now, old, new, other):
        directory.mkdir()
    for directory in (old, new, other):
        assert list(make_certificates(directory, "node", "edge"))
    trusted, same = now / "authority.pem", tmp_path / "same.pem"
    for path in (trusted, same):
        path.write_bytes(b"".join((one / "authority.pem").read_bytes() for one in (old, new, other)))
    for name in PAIRS:
        copied(old / name, now / name)
    acceptor = f'certificate = "{now}/node.pem"\nkey = "{now}/node.key"\nclient-ca = "{trusted}"\n'
    acceptor += f'tokens = ["root-secret"]\n{USER}'
    hub = make_node("hub", scheme="wss", acceptor=acceptor, tls=client_tls(now), token="root-secret")
    edge = make_node("edge", edge_of(hub, trusted, now / "edge"))
    start_together(hub, edge)
    await_links(hub, "a", "b")

    def reopened(before: str) -> bool:
        return links(hub).get("a-to-hub", before) != before

    with Stream(edge, "a", "b") as stream, unchanged(edge, hub, "b"):
        for authority, certificate in (
            (trusted, other / "edge"),
            (same, other / "edge"),
            (same, now / "edge"),
        ):
            before = await_links(hub, "a", "b")["a-to-hub"]
            edge.rest = edge_of(hub, authority, certificate)
            edge.write()
            assert outcome(edge) == {"restarted": ["a-to-hub"]}
            eventually(lambda before=before: reopened(before), "it connects anew")  # type: ignore[misc]
            flows(stream, hub)

        edge.rest = edge_of(hub, trusted, other / "edge").replace("other/edge.key", "old/edge.key")
        edge.write()
        ended = reload(edge)
        assert ended.code == 2
        assert "connectors.by-certificate.key: must be the private key" in ended.err
        edge.rest = edge_of(hub, same, now / "edge")
        edge.write()
        assert outcome(edge) == {}, "the refused file has changed nothing"

        before = await_links(hub, "a", "b")["a-to-hub"]
        for name in PAIRS:
            copied(new / name, now / name)
        hub.event("credentials-reloaded", settings=["acceptor"])
        edge.event("credentials-reloaded", settings=["connectors.by-certificate"])
        eventually(lambda: reopened(before), "it connects anew")
        flows(stream, hub)

        hub.acceptor = acceptor.replace(f"{now}/node.", f"{old}/node.")
        hub.write()
        ended = reload(hub)
        assert ended.code == 1
        for key in ("certificate", "key"):
            assert f"acceptor.{key}: cannot change while the node runs" in ended.err
        hub.acceptor = acceptor
        hub.write()
        flows(stream, hub)
    all_arrive_once(hub, stream.sent)
    assert not edge.events("bridge-failed")
