"""``python -m bridge.workers``: a worker process. Only a node's supervisor starts it.

It imports neither the journal nor HTTP: N processes hold every module that is loaded here.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from bridge.runtime import signals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bridge.relay.operated import Operated
    from bridge.relay.transforming import Transformers
    from bridge.workers.channel import Begin
    from bridge.workers.lines import LinesOut


def main() -> int:
    """Run the bridges from Kafka to Kafka that the settings name; 0 drained, 1 could not start or died."""
    signals.hold_in_worker()  # before the slow imports
    import argparse
    from pathlib import Path

    parser = argparse.ArgumentParser(
        description="A worker of a core-bridge node; started by the node itself."
    )
    parser.add_argument("--settings", required=True, type=Path)
    parser.add_argument("--worker", required=True, type=int)  # the one named in logs; shown by `ps`
    parser.add_argument("--channel", required=True, type=int)
    arguments = parser.parse_args()

    from bridge.relay.transforming import Transformers
    from bridge.workers import worker
    from bridge.workers.lines import LinesOut

    lines, transformers = LinesOut(), Transformers()

    def make(begin: Begin) -> Mapping[str, Operated]:
        return _bridges(arguments.settings, begin, lines, transformers)

    return worker.run(arguments.channel, make, lines)


def _bridges(path: Path, begin: Begin, lines: LinesOut, transformers: Transformers) -> Mapping[str, Operated]:
    """The bridges by the settings that the node has read at `path`."""
    from bridge.assembly.bridges import Assembly
    from bridge.end_kind import NodeContext
    from bridge.runtime import logs
    from bridge.runtime.clock import SystemClock
    from bridge.settings import SettingsFile
    from bridge.workers.shared import bridges_in_workers

    settings = SettingsFile(path, os.environ, text=begin.settings).settings()
    node = settings.node
    logs.configure(node.log_level, node.log_format, node.name, worker=begin.worker)
    write = lines.write if settings.delivery_log.enabled else None
    assembly = Assembly(
        NodeContext(
            settings,
            SystemClock(),
            node_id=begin.node_id,
            process=f"{node.name} worker {begin.worker}",
            write_lines=write,
        ),
        transformers,
        processes=node.workers,
    )
    return {bridge.name: assembly.operated(bridge) for bridge in bridges_in_workers(settings)}


if __name__ == "__main__":
    sys.exit(main())
