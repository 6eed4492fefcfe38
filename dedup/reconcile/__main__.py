"""``python -m dedup.reconcile``, and the file that spark-submit runs: the command without `core-bridge`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Started by its path, as spark-submit does: names of modules here must not hide those of other packages.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]

import argparse
import re
from collections.abc import Sequence
from typing import Final

from dedup.reconcile.main import EXIT_CODES, NEVER, add_options, main

_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS: Final = 36_500 * _UNITS_MS["d"]


def duration_ms(text: str) -> int:
    """Milliseconds of ``60s``, as the settings write it; they are not asked: this runs without `bridge`."""
    if text == str(NEVER):
        return NEVER
    match = re.fullmatch(r"([0-9]{1,15})(|ms|s|m|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f'must be a time such as 2000 (ms) or "60s" (ms, s, m, h, d), or -1 for never; found {text}'
        )
    found = int(match[1]) * _UNITS_MS[match[2]]
    if found > _LONGEST_MS:
        raise argparse.ArgumentTypeError(f"must be at most 100 years (36500d); found {text}")
    return found


def run(arguments: Sequence[str]) -> int:
    """Parse the arguments and run the command."""
    parser = argparse.ArgumentParser(
        prog="dedup.reconcile",
        description="Compare the delivery logs of both sides and write a report.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, duration_ms)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the results")
    return main(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
