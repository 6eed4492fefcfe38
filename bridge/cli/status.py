"""`core-bridge status`: shows a running node's status: itself, bridges, addresses, queues; its cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from bridge.cli.cluster_status import cluster_of, describe_cluster
from bridge.cli.endpoints import node_connection, operations_connection
from bridge.cli.options import named_settings
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient, Problem, Unreachable
from bridge.client.progress import warn

_EPILOG = f"""\
Asks --operations; with --url, the acceptor there for the addresses, as a client with this token sees them.
Text: a line for the node, and a line each for a bridge, a bridge of another node that is connected to this
one (link), an address and a queue; of a bridge whose lanes are shared, who has which:

  node node-1 ready
  version 0.1.0
  bridge orders-to-hub RUNNING journal:orders -> hub sent 812 acknowledged 800 in-flight 12 lag 12
    since 2026-02-01T09:14:02.511Z last-progress 2026-02-01T09:20:44.102Z oldest-waiting 0.2s
  bridge eu-to-us RUNNING eu:trades -> us sent 90 acknowledged 90 in-flight 0 lag 0
    since 2026-02-01T09:14:02.511Z last-progress 2026-02-01T09:19:59.730Z
  lanes eu-to-us 0,1 node-1 127.0.0.1
  lanes eu-to-us 2,3 node-2 127.0.0.2
  link till-to-node of till-7 from 10.0.0.9 user till since 2026-02-01T09:14:02.511Z
  address orders messages 12 bytes 10744 max-bytes 1073741824 next 812 duplicates 3
  queue orders/billing next 800 lag 12 leased 0

Each bridge's line ends with the time since when it is in its state, the time of the last receipt, and the age
of the oldest message that waits; here they stand below it.

Duplicates are messages that came again since the node started and were not stored again. Where a proxy is on
the way of a bridge, "through" names it, and the setting or variable that names it. Where a bridge has
sent messages in vain, resent says how many. Where a link is compressed, frame-bytes are the bytes of its
batches before, wire-bytes those after it. A bridge with a filter says how many messages it has passed over
(filtered), and for how many of them its condition could not be evaluated (not-evaluated); a line "filter"
below it says why the filter is probably mistyped. One with a transformer says how many messages that has
dropped (dropped). Where an address got messages that the filters of all its queues left out, unrouted says
how many.

With --bridge: that bridge alone, and what it reads; of a Kafka partition up to where the target has all of it
(position), its end, what waits (lag), and why it stands still where others go on. Of a bridge that reads this
node's journal: its addresses.

  partition orders/0 position 812 end 824 lag 12
  partition orders/1 position 90 end 90 lag 0

With --cluster: what the node knows of its cluster. A line for each cluster connection; a table of the nodes,
this one first, with the bridge to each: what it has sent, what the other node has acknowledged, what is under
way, and what waits here for that node (lag), also while it is away; a table of the queues with their readers;
and the addresses whose routing type another node has differently, which are not shared with it:

  connection my-cluster RUNNING ON_DEMAND addresses all max-hops 1

  node    state  reachable  hops  version  url               bridge   sent  acknowledged  in-flight  lag
  node-1  UP     here       0     3.7      ws://node-1:61616 -        -     -             -          -
  node-2  UP     yes        1     1.4      ws://node-2:61616 RUNNING  812   800           12         12

  queue      node    routing-type  readers  filter
  jobs/jobs  node-1  ANYCAST       0        -
  jobs/jobs  node-2  ANYCAST       1        -

A node without cluster connections says so.

examples:
  {PROGRAM} status
  {PROGRAM} status --cluster
  {PROGRAM} status --bridge eu-to-us
  {PROGRAM} status --operations http://127.0.0.1:8161 --format json

exit codes: 0 answered, 1 no answer, 2 wrong usage
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "status",
        parents=[common],
        help="show a running node: readiness, bridges, addresses, queues",
        description="Show what a running node says about itself.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--cluster", action="store_true", help="show the cluster as the node knows it: nodes, queues, readers"
    )
    parser.add_argument(
        "--bridge", metavar="NAME", help="show this bridge and all partitions, or addresses, that it reads"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.bridge:
        if arguments.cluster:
            warn(f"{PROGRAM}: status takes --cluster or --bridge, not both")
            return Exit.USAGE
        bridge = asyncio.run(_ask_bridge(arguments))
        if arguments.format == "json":
            print(json.dumps(bridge))
        else:
            for line in describe_bridge(bridge):
                print(line)
        return Exit.OK
    status = asyncio.run(_ask(arguments))
    shown = cluster_of(status) if arguments.cluster else status
    if arguments.format == "json":
        print(json.dumps(shown))
    else:
        for line in describe_cluster(shown) if arguments.cluster else describe(shown):
            print(line)
    return Exit.OK


async def _ask(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.url and not arguments.operations and named_settings(arguments) is None:
        warn(f"{PROGRAM}: status --url needs --operations or --settings, too: which node is it?")
        raise SystemExit(Exit.USAGE)
    acceptor = node_connection(arguments) if arguments.url and not arguments.cluster else None
    async with NodeClient(operations_connection(arguments)) as operations:
        status = dict((await operations.call("GET", "/v1/status")).body)
    if acceptor is None:
        return status
    status.pop("addresses", None)
    try:
        async with NodeClient(acceptor) as node:
            status["addresses"] = (await node.call("GET", "/v1/addresses")).body["addresses"]
    except (Problem, Unreachable) as error:  # a node may have no acceptor, or one for other users only
        warn(f"{PROGRAM}: the addresses are not shown: {error.code}: {error}")
    return status


async def _ask_bridge(arguments: argparse.Namespace) -> dict[str, Any]:
    async with NodeClient(operations_connection(arguments)) as operations:
        path = f"/v1/bridges/{quote(arguments.bridge, safe='')}"
        return dict((await operations.call("GET", path)).body)


def describe_bridge(bridge: Mapping[str, Any]) -> Iterator[str]:
    """A bridge with all that it reads, as lines."""
    yield from _bridge(bridge)
    for row in bridge.get("partitions", ()):
        reason = f" ({row['reason']})" if row["reason"] else ""
        counts = _pairs(row, "position", "end", "lag")
        yield f"partition {row['topic']}/{row['partition']} {counts}{reason}"
    for row in bridge.get("addresses", ()):
        yield f"address {row['address']} {_pairs(row, 'position', 'end', 'lag')}"


def _bridge(bridge: Mapping[str, Any]) -> Iterator[str]:
    reason = f" ({bridge['reason']})" if bridge.get("reason") else ""
    route = f"{bridge.get('source')} -> {bridge.get('target')}"
    if bridge.get("connector") not in (None, bridge.get("target")):
        route += f" by {bridge['connector']}"
    if bridge.get("proxy"):
        route += f" through {bridge['proxy']}"
    counts = _pairs(bridge, "sent", "acknowledged", "in-flight", "lag")
    filtered = f" {_pairs(bridge, 'filtered')}" if bridge.get("filter") else ""
    filtered += f" {_pairs(bridge, 'dropped')}" if bridge.get("transformer") else ""
    if bridge.get("not-evaluated"):
        filtered += f" {_pairs(bridge, 'not-evaluated')}"
    resent = f" resent {bridge['resent']}" if bridge.get("resent") else ""
    line, times = _line(bridge.get("line")), _times(bridge)
    rest = f"{resent}{line}{_compression(bridge)}{times}{reason}"
    yield f"bridge {bridge['name']} {bridge['state']} {route} {counts}{filtered}{rest}"
    if bridge.get("filter-doubt"):
        yield f"filter {bridge['name']}: {bridge['filter-doubt']}"
    if bridge.get("lanes"):
        yield from _lanes(bridge["name"], bridge["lanes"])


def _line(line: Mapping[str, Any] | None) -> str:
    """The limit that keeps a bridge from sending more, where that lies between it and its target."""
    if line is None or line["limit"] in (None, "source", "target"):
        return ""
    far = "" if line["round-trip-ms"] is None else f", {line['round-trip-ms']} ms"
    return f" limit {line['limit']} ({line['bytes-per-second']} bytes/s{far})"


def describe(status: Mapping[str, Any]) -> Iterator[str]:
    """The status as lines."""
    ready = "ready" if status.get("ready") else "not ready: " + "; ".join(status.get("reasons", ()))
    yield f"node {status.get('node', '')} {ready}"
    if "version" in status:
        yield f"version {status['version']}"
    for bridge in status.get("bridges", ()):
        yield from _bridge(bridge)
    for link in status.get("links", ()):
        counts = _pairs(link, "user", "since") + _compression(link)
        yield f"link {link['bridge']} of {link['node']} from {link['peer']} {counts}"
    duplicates = status.get("duplicates", {})
    for address in status.get("addresses", ()):
        counted = {**address, "duplicates": duplicates.get(address["address"], 0)}
        counts = _pairs(counted, "messages", "bytes", "max-bytes", "next", "duplicates", "unrouted")
        full = " (full)" if address["bytes"] >= address["max-bytes"] else ""
        yield f"address {address['address']} {counts}{full}"
        for queue in address["queues"]:
            counts = _pairs(queue, "next", "lag", "leased", "filter")
            yield f"queue {address['address']}/{queue['name']} {counts}"


def _compression(way: Mapping[str, Any]) -> str:
    """The bytes of a bridge to a node, or of a link, before and after compression; empty where they are
    equal.
    """
    frame_bytes, wire_bytes = way.get("frame-bytes", 0), way.get("wire-bytes", 0)
    if wire_bytes >= frame_bytes:
        return ""
    return f" {_pairs(way, 'frame-bytes', 'wire-bytes')} ratio {frame_bytes / wire_bytes:.1f}"


def _times(bridge: Mapping[str, Any]) -> str:
    """Since when the bridge is in its state, its last progress, and the age of the oldest message."""
    found = "".join(f" {name} {bridge[name]}" for name in ("since", "last-progress") if bridge.get(name))
    oldest_s = bridge.get("oldest-waiting-seconds")
    return found + (f" oldest-waiting {oldest_s:g}s" if oldest_s else "")


def _lanes(bridge: str, lanes: Mapping[str, Any]) -> Iterator[str]:
    """The owners of a bridge's lanes, over all nodes that are known; nothing where one owner has all."""
    members = lanes["members"]
    if members is None:
        if lanes["trouble"]:
            trouble = f"(of other nodes nothing is known: {lanes['trouble']})"
            yield f"lanes {bridge} {_numbers(lanes['here'])} here {trouble}"
        return
    if len(members) == 1 and not members[0]["failed"] and not lanes["nobody"]:
        return
    for member in members:
        failed = f" (failed there: {_numbers(member['failed'])})" if member["failed"] else ""
        yield f"lanes {bridge} {_numbers(member['lanes'])} {member['name']} {member['host']}{failed}"
    if lanes["nobody"]:
        yield f"lanes {bridge} {_numbers(lanes['nobody'])} nobody"


def _numbers(lanes: Iterable[int]) -> str:
    return ",".join(map(str, lanes)) or "none"


def _pairs(values: Mapping[str, Any], *names: str) -> str:
    return " ".join(f"{name} {_shown(values[name])}" for name in names if name in values)


def _shown(value: object) -> object:
    return "unknown" if value is None else value
