"""`core-bridge init`: writes a settings file to start from."""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from bridge.cli.options import DEFAULT_SETTINGS, SETTINGS_VARIABLE, settings_path
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.progress import warn

_EPILOG = f"""\
The file explains every setting where it stands, and runs as it is: messages come in at 127.0.0.1:61616,
probes and management are at 127.0.0.1:8161, and everything is kept in the directory data beside the file.
A file that is there already is never overwritten.

examples:
  {PROGRAM} init && {PROGRAM} validate && {PROGRAM} run
  {PROGRAM} init hub.toml

exit codes: 0 written, 2 wrong usage, or a file that is there already or cannot be written
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "init",
        parents=[common],
        help="write a settings file to start from, with every setting explained",
        description="Write a settings file to start from, with every setting explained.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help=f"the file to write (default: --settings, ${SETTINGS_VARIABLE}, else ./{DEFAULT_SETTINGS})",
    )
    parser.set_defaults(run=main)


def main(arguments: argparse.Namespace) -> int:
    """Write the file; returns 2 where one exists already."""
    path = settings_path(arguments) if arguments.file is None else Path(arguments.file)
    # In a checkout the sample is a link to the shipped settings.toml.
    sample = resources.files("bridge.settings").joinpath("sample.toml").read_bytes()
    try:
        with path.open("xb") as file:
            try:
                _write(file, sample)
            except OSError:
                path.unlink()  # an empty or truncated file would be valid settings of another node
                raise
    except FileExistsError:
        warn(f"{PROGRAM}: {path}: file exists; init overwrites none")
        return Exit.USAGE
    except OSError as error:
        warn(f"{PROGRAM}: {path}: {str(error.strerror).lower()}")
        return Exit.USAGE
    print(f"{path}: written; {PROGRAM} validate checks it, {PROGRAM} run starts the node")
    return Exit.OK


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
