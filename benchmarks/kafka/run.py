"""The benchmark itself: raw producing, then a backlog and steady rates of each relay on the same clusters."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.kafka import load
from benchmarks.kafka.relays import HEAP, CoreBridge, MirrorMaker, Relay
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.distribution import distribution

BACKLOG = 600_000
#: Messages that warm a JVM up before anything is measured, of both relays alike.
WARM_UP = 100_000
LANES = 4
RATES = (1_000, 5_000)
STEADY_SECONDS = 15
#: How often each of core bridge's two modes is measured, one after the other and in alternating order.
TURNS = 5
#: Longest that a relay may bring nothing, from its start on, seconds.
STALLED_S = 180
#: The brokers as they come, but for their heap: the JVM options of the tests start quickly and run slowly.
BROKER = {"heap": "1g", "jvm": ("-XX:+UseG1GC", "-Xms512m")}


@dataclass
class Figures:
    """The figures of one relay."""

    name: str
    rate: float
    cpu_us: float
    peak_mib: float
    latencies: dict[int, dict[str, float]]


def loader(*arguments: object) -> dict[str, Any]:
    """One run of a load process."""
    command = [sys.executable, "-m", "benchmarks.kafka.load", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])} failed with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Run:
    """Two clusters, and the measurements on them."""

    def __init__(self, directory: Path, source: str, target: str, scale: float) -> None:
        self.directory = directory
        self.source = source
        self.target = target
        self.backlog = int(BACKLOG * scale) // load.PARTITIONS * load.PARTITIONS
        self.warm_up = int(WARM_UP * scale) // load.PARTITIONS * load.PARTITIONS
        self.ends = load.Ends(target)

    def raw(self) -> float:
        """Messages/s of one producer alone, to the source cluster."""
        load.make_topic(self.source, "raw")
        rate: float = loader("backlog", self.source, "raw", self.backlog)["messages/s"]
        return rate

    def measure(self, topic: str, start: Callable[[str], Relay], rates: Sequence[int] = RATES) -> Figures:
        """A warm-up, the backlog of one relay, and its latency at each of the rates."""
        load.make_topic(self.source, topic)
        loader("backlog", self.source, topic, self.warm_up)
        relay = start(topic)
        try:
            self._await(relay, [self.warm_up // load.PARTITIONS] * load.PARTITIONS)
            before = self.ends.settled(relay.target_topic)
            relay.pause()
            loader("backlog", self.source, topic, self.backlog)
            cpu = relay.cpu_seconds()
            began = time.perf_counter()
            relay.resume()
            ended = self._await(relay, [end + self.backlog // load.PARTITIONS for end in before])
            cpu_us = (relay.cpu_seconds() - cpu) / self.backlog * 1e6
            latencies = {
                rate: loader(
                    "steady", self.source, self.target, topic, rate, STEADY_SECONDS, relay.target_topic
                )
                for rate in rates
            }
            return Figures(relay.name, self.backlog / (ended - began), cpu_us, relay.peak_mib(), latencies)
        finally:
            relay.stop()

    def _await(self, relay: Relay, ends: list[int]) -> float:
        """The time of the last record: the ends are reached, and no record has come for a second.

        Raises: SystemExit, where nothing comes for `STALLED_S` and they are not.
        """
        last: list[int] | None = None
        changed = time.perf_counter()
        while True:
            relay.check()
            now = self.ends.of(relay.target_topic)
            quiet = time.perf_counter() - changed
            if now is not None and now != last:
                last, changed = now, time.perf_counter()
            elif last is not None and quiet > 1 and all(a >= b for a, b in zip(last, ends, strict=True)):
                return changed
            elif quiet > STALLED_S:
                raise SystemExit(
                    f"{relay.name}: nothing has come for {STALLED_S} s: {relay.target_topic} ends at {last},"
                    f" expected at least {ends}"
                )
            time.sleep(load.ASK_AGAIN_S)


def report(figures: Figures, peer: Figures | None, raw: float) -> None:
    """One relay's figures, as ratios of the peer's and of raw producing."""
    beside = ""
    if peer is not None:
        beside = (
            f" [{figures.rate / peer.rate:.2f} of {peer.name}'s rate (aim >= 1, 1.3),"
            f" {figures.cpu_us / peer.cpu_us:.2f} of its CPU (aim <= 0.5),"
            f" {figures.peak_mib / peer.peak_mib:.2f} of its memory (aim <= 0.25)]"
        )
    print(
        f"{figures.name}: {figures.rate:,.0f} messages/s, {figures.rate / raw:.2f} of raw producing;"
        f" {figures.cpu_us:.1f} CPU us/message; {figures.peak_mib:.0f} MiB at most{beside}"
    )
    for rate, latency in figures.latencies.items():
        shown = " ".join(f"{name} {value:.1f}" for name, value in latency.items())
        beside = ""
        if peer is not None:
            theirs = peer.latencies[rate]
            shares = ", ".join(f"{latency[name] / theirs[name]:.2f} of its {name}" for name in latency)
            beside = f" [{shares}]"
        print(f"  at {rate:,} messages/s: {shown} ms{beside}", flush=True)


def compare(name: str, one: Sequence[Figures], other: Sequence[Figures]) -> None:
    """The ratios of two relays that were measured by turns, as medians, with their range."""
    print(f"core bridge, {name}, {len(one)} turns each:")
    for what in ("rate", "cpu_us"):
        ratios = [getattr(a, what) / getattr(b, what) for a, b in zip(one, other, strict=True)]
        print(
            f"  {what}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f});"
            f" {statistics.median(getattr(a, what) for a in one):,.1f}"
            f" and {statistics.median(getattr(b, what) for b in other):,.1f}",
            flush=True,
        )


def run(directory: Path, scale: float, *, exactly_once: bool = True) -> None:
    """Print the figures of both: exactly once, or at least once and core bridge's exactly once beside it."""
    with (
        Cluster(name="eu", directory=directory / "eu", **BROKER) as eu,  # type: ignore[arg-type]
        Cluster(name="us", directory=directory / "us", **BROKER) as us,  # type: ignore[arg-type]
    ):
        runner = Run(directory, eu.bootstrap, us.bootstrap, scale)
        raw = runner.raw()
        print(
            f"raw producing, one idempotent producer, {load.MESSAGE_BYTES} B: {raw:,.0f} messages/s",
            flush=True,
        )
        jars = distribution().class_path

        def mirror_maker(topic: str) -> Relay:
            linger_ms = 20 if exactly_once else None
            return MirrorMaker(
                directory / "mm2", eu.bootstrap, us.bootstrap, topic, jars=jars, linger_ms=linger_ms
            )

        def core_bridge(topic: str, *, once: bool) -> Relay:
            return CoreBridge(
                directory / topic, eu.bootstrap, us.bootstrap, topic, lanes=LANES, exactly_once=once
            )

        peer = runner.measure("for-mm2", mirror_maker)
        how = "exactly once, tasks.max 4, 1 MB batches, linger 20 ms" if exactly_once else "as it comes"
        print(f"MirrorMaker 2: {how}, -Xmx{HEAP}")
        report(peer, None, raw)
        modes = {True: "exactly once"} if exactly_once else {False: "at least once", True: "exactly once"}
        found: dict[bool, list[Figures]] = {once: [] for once in modes}
        for turn in range(1 if exactly_once else TURNS):
            for once in modes if turn % 2 == 0 else reversed(modes):
                topic = f"{modes[once].replace(' ', '-')}-{turn}"
                figures = runner.measure(topic, partial(core_bridge, once=once), () if turn else RATES)
                found[once].append(figures)
                print(f"core bridge: {modes[once]}, concurrency {LANES}, defaults otherwise")
                report(figures, peer, raw)
        if not exactly_once:
            compare("at least once / exactly once", found[False], found[True])
