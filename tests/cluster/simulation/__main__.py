"""Runs random histories by hand: `python -m tests.cluster.simulation --seeds N --first K --without RULE`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.cluster.simulation.history import run
from tests.cluster.simulation.rules import RULES


def main() -> int:
    """Run the seeds; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.simulation")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--without", action="append", default=[], choices=sorted(RULES))
    parser.add_argument("--directory", default=None, help="where the journals are made; a tmpfs is fastest")
    options = parser.parse_args()
    began, failed, stats = time.process_time(), 0, Counter[str]()
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            outcome = run(seed, Path(directory), options.without)
        stats += outcome.stats
        if outcome.error:
            failed += 1
            print(f"seed {seed}: {outcome.error}", flush=True)
    without = f"without {', '.join(options.without)}: " if options.without else ""
    print(f"{without}{failed} of {options.seeds} failed, {time.process_time() - began:.1f} s")
    print(dict(sorted(stats.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
