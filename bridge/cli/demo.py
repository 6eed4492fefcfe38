"""`core-bridge demo`: runs a real relay through cuts and kills, and proves the result."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.progress import Progress, warn

if TYPE_CHECKING:
    from bridge.demo.stage import Stage

_EPILOG = f"""\
Starts two nodes, edge and hub, as two processes with a bridge between them, and sends the rows to the
edge: even rows one POST each under their natural key (time_hour/carrier/flight, else line number and
hash), odd rows in transactions of 100 with one ID. Meanwhile the link is cut, the edge killed with SIGKILL
and started again, then the hub. A tenth of the rows is sent again with the same IDs. At last everything is
read at the hub and compared with the file, row by row and in order: each client's rows against the file,
and all of them against the positions that the edge answered with.

With --kafka the rows go from a topic in one Kafka cluster to the same topic in another. Two relays with one
bridge are started. The one that relays is killed, the next one too, and the third time it is suspended
(SIGSTOP) until the other one has taken over, and then wakes up: that is the cut. A tenth of the rows is sent
again. At last the target's topic is read, read_committed, and compared with the file, partition by partition
and in order. Topics are made with names of their own, and removed afterwards.

With --cluster the rows go to a cluster of three nodes, half of them as jobs (ANYCAST: each for one reader of
the whole cluster), half as news (MULTICAST: each for every queue name; one queue is on every node, one on
one node alone). Clients and readers are at every node. Two nodes start; the third joins under way; the one
that alone has a queue is killed with SIGKILL and started again; the third drains to the first, and its
clients go there. A tenth of the rows is sent again. Readers
acknowledge a page, and store what they made of it, in one transaction; at last all of that is compared with
the file: each job was processed once over the cluster, each piece of news once for each queue name, and each
client's rows in order. In the proof, sent and arrived count rows, processed counts them for each queue.

example:
  {PROGRAM} demo
  seq 100000 | {PROGRAM} demo --input - --format json
  make kafka-up && {PROGRAM} demo --kafka
  {PROGRAM} demo --cluster

The last line of stdout is the proof, which is there before --report is begun:
  sent 20000 repeated 2000 duplicates 2000 arrived 20000 lost 0 doubled 0 out-of-order 0 kills 2 cuts 1 ...

exit codes: 0 every row arrived once and in order (with --report: and the delivery logs say so too),
1 not so, 2 wrong usage, 130 Ctrl-C
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "demo",
        parents=[common],
        help="relay 20,000 real rows through a cut and two kills, and prove it",
        description="Relay a real data set through a cut and two kills, and prove what arrived.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--input",
        default="",
        metavar="FILE",
        help="any text file, a row a line; - is stdin (default: 20,000 departures from New York, 2013)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep settings, journals, logs and topics (default: remove)"
    )
    parser.add_argument(
        "--logs",
        metavar="DIR",
        help="copy the delivery logs here, for reconcile: a directory that is empty or not there",
    )
    parser.add_argument(
        "--report",
        metavar="DIR",
        help="reconcile the delivery logs as well, and write the report here (needs Java and the extra "
        "reconcile)",
    )
    parser.add_argument(
        "--kafka", action="store_true", help="between two Kafka clusters instead of two nodes"
    )
    for side, port in (("source", 19092), ("target", 19192)):
        parser.add_argument(
            f"--{side}",
            metavar="HOST:PORT",
            help=f"with --kafka: a broker of the {side}, no TLS or SASL (default: 127.0.0.1:{port}, where "
            "`make kafka-up` starts one)",
        )
    parser.add_argument(
        "--cluster", action="store_true", help="over a cluster of three nodes, one of which joins and drains"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.cluster and arguments.kafka:
        warn(f"{PROGRAM}: demo --cluster and --kafka are two demos: name one")
        return Exit.USAGE
    for side in ("source", "target"):
        if getattr(arguments, side) is not None and not arguments.kafka:
            warn(f"{PROGRAM}: demo --{side} needs --kafka")
            return Exit.USAGE
    if arguments.logs is not None and not _is_free(Path(arguments.logs)):
        warn(f"{PROGRAM}: {arguments.logs}: must be an empty directory, or not there")
        return Exit.USAGE
    return asyncio.run(_play(arguments))


def _is_free(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


async def _play(arguments: argparse.Namespace) -> int:
    from bridge.demo.nodes import DemoFailed

    task = asyncio.current_task()
    assert task is not None
    # SIGTERM must not leave two nodes running: it ends the demo as Ctrl-C does.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    story: Stage | None = None
    try:
        try:
            story = await _stage(arguments)
        except OSError as error:
            warn(f"{PROGRAM}: {arguments.input}: {str(error.strerror).lower()}")
            return Exit.USAGE
        story.report = None if arguments.report is None else Path(arguments.report)
        story.logs = None if arguments.logs is None else Path(arguments.logs)
        story.on_proof = lambda proof: print(proof.line(arguments.format), flush=True)
        proof = await story.play()
    except asyncio.CancelledError:
        if task.cancelling():
            raise KeyboardInterrupt from None
        raise
    except DemoFailed as failed:
        if failed.log:
            warn(failed.log)
        raise
    finally:
        if story is not None and story.kept:
            warn(f"{PROGRAM}: {story.remains}")
    return Exit.OK if proof.holds and story.accounted else Exit.FAILED


async def _stage(arguments: argparse.Namespace) -> Stage:
    """The demo to run. Raises: BadInput, OSError; NoClusters."""
    from bridge.demo.rows import read_input

    if arguments.cluster:
        from bridge.demo.cluster_story import ClusterStory

        return ClusterStory(read_input(arguments.input), Progress(), keep=arguments.keep)
    if not arguments.kafka:
        from bridge.demo.story import Story

        return Story(read_input(arguments.input), Progress(), keep=arguments.keep)
    from bridge.demo import kafka_story

    source = arguments.source or kafka_story.SOURCE
    target = arguments.target or kafka_story.TARGET
    rows = read_input(arguments.input)
    await kafka_story.check_clusters(source, target)
    return kafka_story.KafkaStory(rows, Progress(), keep=arguments.keep, source=source, target=target)
