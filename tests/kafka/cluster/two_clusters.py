"""Two Kafka clusters for people: ``make kafka-up`` and ``make kafka-down``.

They stay until they are ended, on the same ports every time, and their data goes with them. ``running``
answers by its exit code whether both are there.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from tests.kafka.cluster.brokers import HEAP, Cluster
from tests.kafka.cluster.distribution import Missing, cache
from tests.kafka.cluster.waiting import BrokerFailed

#: Where each listens, if the command line does not say otherwise.
FIRST_PORTS: Final = {"a": 19092, "b": 19192}
#: A clean end, in seconds; then SIGKILL.
STOP_TIMEOUT_S: Final = 20.0
USAGE: Final = "usage: python -m tests.kafka.cluster.two_clusters up [PORT_A PORT_B] | down | running"


def up(directory: Path, ports: dict[str, int]) -> None:
    """Start what does not run, and say where both are."""
    for name, port in ports.items():
        home = directory / name
        if running(home) is None:
            shutil.rmtree(home, ignore_errors=True)
            cluster = Cluster(name=name, directory=home, first_port=port, heap=HEAP, watched=False).start()
            (home / "pid").write_text(f"{cluster.broker(1).pid}\n", encoding="utf-8")
            (home / "bootstrap").write_text(f"{cluster.bootstrap}\n", encoding="utf-8")
        bootstrap = (home / "bootstrap").read_text(encoding="utf-8").strip()
        print(f"cluster {name}: kafka://{bootstrap}")
    print(f"data and logs: {directory} (make kafka-down ends both and takes the data away)")


def down(directory: Path) -> None:
    """End both, and take their data away."""
    for name in FIRST_PORTS:
        home = directory / name
        pid = running(home)
        if pid is not None:
            end(pid)
        print(f"cluster {name}: {'not running' if pid is None else 'ended'}")
        shutil.rmtree(home, ignore_errors=True)


def running(home: Path) -> int | None:
    """The pid of the broker that works in `home`; a pid that another process has now is not it."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        pid = int((home / "pid").read_text(encoding="utf-8"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if str(home / "broker-1" / "server.properties").encode() in command:
            return pid
    return None


def end(pid: int) -> None:
    """SIGTERM, and SIGKILL when that takes too long; returns when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(process, number)
                # A pidfd is readable once its process has ended.
                if select.select([process], [], [], STOP_TIMEOUT_S)[0]:
                    return
        finally:
            os.close(process)


def main(arguments: list[str], directory: Path) -> None:
    """The command line."""
    try:
        match arguments:
            case ["up"]:
                up(directory, FIRST_PORTS)
            case ["up", a, b] if a.isdecimal() and b.isdecimal():
                up(directory, {"a": int(a), "b": int(b)})
            case ["down"]:
                down(directory)
            case ["running"]:
                raise SystemExit(any(running(directory / name) is None for name in FIRST_PORTS))
            case _:
                raise SystemExit(USAGE)
    except (Missing, BrokerFailed) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main(sys.argv[1:], cache() / "clusters")
