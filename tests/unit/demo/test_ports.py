"""Ports for servers that are started again."""

from __future__ import annotations

import socket

from bridge.demo.ports import HOST, LOWEST, Ports, first_ephemeral


def test_a_port_is_not_given_twice_and_a_taken_one_not_at_all() -> None:
    ports = Ports(1, of=1_000)
    (taken,) = ports.free(1)
    with socket.socket() as server:
        server.bind((HOST, taken))
        server.listen()
        share = len(range(LOWEST, first_ephemeral())[1::1_000])
        given = [ports.free(1)[0] for _ in range(2 * share)]
    assert taken not in given, "a server listens there, however often its turn comes"
    half = given[: share // 2]
    assert len(set(half)) == len(half)


def test_shares_have_no_port_in_common() -> None:
    mine, others = (set(Ports(share, of=500).free(10)) for share in (0, 1))
    assert not mine & others
    assert all(LOWEST <= port < first_ephemeral() for port in mine | others)
