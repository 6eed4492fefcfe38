"""Real Kafka brokers (KRaft): one to three in a cluster, each to be stopped, killed, paused and restarted.

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.broker(1).kill()
        cluster.broker(1).restart()

`cluster.bootstrap` is PLAINTEXT and always there; further listeners (``listeners=("SSL", "SASL_SSL")``, with
what they need in `properties`) are reached by ``cluster.bootstrap_of("SASL_SSL")``. Nothing outlives the
process that started it, unless `watched` is False.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bridge.demo.ports import HOST, free_ports
from tests.harness.watchdog import WATCHDOG
from tests.kafka.cluster.prepared import QUICK_START, STARTED, Prepared, new_id, prepared
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.cluster.waiting import TROUBLE, BrokerFailed, PortTaken, await_line, tail

__all__ = ["QUICK_START", "Broker", "BrokerFailed", "Cluster", "PortTaken", "Reachable"]

#: A clean end, in seconds; one broker alone takes 0.4.
STOP_TIMEOUT_S: Final = 60.0
#: A clean end of brokers that end together, in seconds: the last ones cannot have one.
WITHOUT_QUORUM_S: Final = 3.0
#: Tries of a first start with other ports when somebody was quicker.
PORT_ATTEMPTS: Final = 5
#: Memory of a broker.
HEAP: Final = "512m"
PLAINTEXT: Final = "PLAINTEXT"
CONTROLLER: Final = "CONTROLLER"

#: Small, quick to notice, and otherwise Kafka's defaults. `properties` of a cluster go before these.
PROPERTIES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "inter.broker.listener.name": PLAINTEXT,
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    # An idle controller says so by a record twice a second, unless told otherwise: a third of an idle broker.
    "metadata.max.idle.interval.ms": "5000",
    # A killed broker may come back under its id only when its old session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A follower leaves the in-sync replicas soon: tests of leader changes wait for it.
    "replica.lag.time.max.ms": "3000",
    # Retention and compaction within a test's patience.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # Records of any age stay, unless a topic says otherwise.
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
}


class Broker:
    """One broker of a cluster: the same ports and data however often it ends and starts."""

    def __init__(
        self, kafka: Prepared, node: int, directory: Path, *, heap: str, jvm: tuple[str, ...]
    ) -> None:
        #: Kafka's node id, from 1.
        self.id = node
        self.directory = directory
        #: By listener's name.
        self.ports: dict[str, int] = {}
        #: Whether it ends with this process.
        self.watched = True
        self._kafka = kafka
        self._heap = heap
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def log(self) -> Path:
        """All that it has logged, over all its starts."""
        return self.directory / "broker.log"

    @property
    def data(self) -> Path:
        """Its store."""
        return self.directory / "data"

    @property
    def properties(self) -> Path:
        """Its settings; what a test writes there counts from the next start on."""
        return self.directory / "server.properties"

    @property
    def bootstrap(self) -> str:
        """``host:port`` of its PLAINTEXT listener."""
        return f"{HOST}:{self.ports[PLAINTEXT]}"

    @property
    def pid(self) -> int:
        """The running process's.

        Raises:
            BrokerFailed: it does not run.
        """
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether the process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and wait for nothing."""
        assert not self.running, f"broker {self.id} runs already"
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        command = self._kafka.command(self.properties, heap=self._heap, jvm=self._jvm)
        with self.log.open("ab") as log:
            # A session of its own, so that Ctrl-C leaves the end to us.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        if self.watched:
            WATCHDOG.watch(self._process.pid)

    def await_started(self) -> None:
        """Return when it serves clients: it has caught up with the controller and is in the cluster.

        Raises:
            PortTaken, BrokerFailed: with the end of its log.
        """
        try:
            await_line(self.log, STARTED, self._started(), after=self._log_from)
        except BrokerFailed as error:
            raise type(error)(f"broker {self.id} {error}") from None

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        self.await_started()

    def stop(self) -> None:
        """End it in order: leaders move away first, what is written is flushed."""
        self.terminate()
        if not self.reap(STOP_TIMEOUT_S):
            raise BrokerFailed(f"broker {self.id} did not end within {STOP_TIMEOUT_S:g} s:\n{tail(self.log)}")

    def terminate(self) -> None:
        """SIGTERM, and wait for nothing; `reap` comes after."""
        self._running().terminate()

    def reap(self, within_s: float) -> bool:
        """Wait for the end, and kill what takes longer; answers whether it ended by itself."""
        process = self._started()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        finally:
            if self.watched:
                WATCHDOG.forget(process.pid)
        return True

    def kill(self) -> None:
        """SIGKILL, paused or not."""
        self._running().kill()
        self.reap(STOP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers. Returns when it has stopped."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start it again with the same ports and data; ends it in order first if it runs."""
        if self.running:
            self.stop()
        self.start()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerFailed(f"broker {self.id} was not started")
        return self._process

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._started()
        if process.poll() is not None:
            raise BrokerFailed(f"broker {self.id} has ended with {process.returncode}:\n{tail(self.log)}")
        return process


class Cluster(Reachable):
    """One to three brokers, each of them a controller too."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        name: str = "kafka",
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        listeners: Sequence[str] = (),
        advertised: Mapping[str, int] | None = None,
        heap: str = HEAP,
        jvm: Sequence[str] = QUICK_START,
        first_port: int | None = None,
        watched: bool = True,
    ) -> None:
        """Describe a cluster; nothing runs yet.

        Args:
            brokers: 1 to 3; internal topics get as many replicas.
            name: what errors call it.
            directory: where data and logs go; kept at the end but for the data. Default: a temporary one.
            properties: of every broker; they go before the ones set here.
            listeners: further ones, ``PROTOCOL`` or ``NAME:PROTOCOL``.
            advertised: by listener, the port that clients are told in place of its own, as of a line in
                between; for one broker.
            heap: most memory of a broker's heap.
            jvm: options of the JVM in place of the ones for a quick start.
            first_port: where broker 1 listens for clients; its controller has the port after it, and so on.
                Default: free ones.
            watched: whether the brokers end with this process.

        Raises:
            Missing: what a broker needs is not on this machine.
        """
        assert 1 <= brokers <= 3, brokers
        self.name = name
        self.id = new_id()
        self._owns_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"core-bridge-{name}-"))
        self._first_port = first_port
        self._properties = dict(properties or {})
        self._advertised = dict(advertised or {})
        self._listeners = {entry.partition(":")[0]: entry.rpartition(":")[2] for entry in listeners}
        kafka = prepared()
        self.brokers = [
            Broker(kafka, node, self.directory / f"broker-{node}", heap=heap, jvm=tuple(jvm))
            for node in range(1, brokers + 1)
        ]
        for broker in self.brokers:
            broker.watched = watched
            kafka.format(broker.data, self.id, broker.id)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The PLAINTEXT listeners of all brokers."""
        return self.bootstrap_of(PLAINTEXT)

    def bootstrap_of(self, listener: str) -> str:
        """``host:port,host:port`` of one listener of all brokers."""
        return ",".join(f"{HOST}:{broker.ports[listener]}" for broker in self.brokers)

    def broker(self, node: int) -> Broker:
        """The broker with this id, from 1."""
        return self.brokers[node - 1]

    def start(self) -> Self:
        """Start every broker and wait until the cluster serves.

        Raises:
            BrokerFailed: with the end of the broker's log; nothing is left running.
        """
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._take_ports()
            try:
                return self._start_all()
            except PortTaken:
                self.kill()
                if attempt == PORT_ATTEMPTS or self._first_port is not None:
                    raise
            except BaseException:
                self.kill()
                raise
        raise AssertionError("not reached")

    def stop(self) -> None:
        """End every broker; `restart` brings all back with ports and data.

        The last ones have no quorum left that could take over from them. They would wait for one for five
        minutes, so they are killed; what they have written is in the files all the same.
        """
        running = [broker for broker in self.brokers if broker.running]
        if len(running) == 1:
            running[0].stop()
            return
        for broker in running:
            broker.terminate()
        for broker in running:
            broker.reap(WITHOUT_QUORUM_S)

    def restart(self) -> Self:
        """Start every broker that does not run, with the same ports and data."""
        return self._start_all()

    def kill(self) -> None:
        """SIGKILL every broker that runs."""
        for broker in self.brokers:
            if broker.running:
                broker.kill()

    def close(self) -> None:
        """Leave nothing running and no data; logs stay where the directory was given."""
        self.kill()
        for broker in self.brokers:
            shutil.rmtree(broker.data, ignore_errors=True)
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tails(self) -> dict[str, str]:
        """The last warnings and errors of each broker, for people who look at a failed test."""
        return {
            f"{self.name}, broker {broker.id} ({broker.log})": tail(broker.log, only=TROUBLE)
            for broker in self.brokers
        }

    def _start_all(self) -> Self:
        waiting = [broker for broker in self.brokers if not broker.running]
        for broker in waiting:
            broker.launch()
        for broker in waiting:
            broker.await_started()
        self.await_brokers(len(self.brokers))
        return self

    def _take_ports(self) -> None:
        names = [PLAINTEXT, CONTROLLER, *self._listeners]
        count = len(names) * len(self.brokers)
        first = self._first_port
        ports = iter(free_ports(count) if first is None else range(first, first + count))
        for broker in self.brokers:
            broker.ports = {name: next(ports) for name in names}
        for broker in self.brokers:
            settings = {**PROPERTIES, **self._own_properties(broker), **self._properties}
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            broker.properties.write_text(text, encoding="utf-8")

    def _own_properties(self, broker: Broker) -> dict[str, str]:
        """What differs between clusters and brokers."""
        replicas = str(len(self.brokers))
        protocols = {PLAINTEXT: PLAINTEXT, CONTROLLER: PLAINTEXT, **self._listeners}
        addresses = {name: f"{name}://{HOST}:{port}" for name, port in broker.ports.items()}
        told = {
            name: f"{name}://{HOST}:{self._advertised.get(name, port)}" for name, port in broker.ports.items()
        }
        return {
            "node.id": str(broker.id),
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(address for name, address in told.items() if name != CONTROLLER),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "controller.quorum.voters": ",".join(
                f"{other.id}@{HOST}:{other.ports[CONTROLLER]}" for other in self.brokers
            ),
            "log.dirs": str(broker.data),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, len(self.brokers))),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, len(self.brokers))),
        }
