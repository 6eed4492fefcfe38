"""`core-bridge migrate`: writes the settings that stand for an Artemis broker.xml."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.progress import warn

if TYPE_CHECKING:
    from bridge.migrate.migration import Migration

_EPILOG = f"""\
Connectors, acceptors, addresses, address-settings, bridges, diverts, cluster connections and duplicate-ID
keys become settings, on stdout or in --output. Each line of broker.xml that could not be carried over is
named on stderr, and as a comment in the settings, with what stands for it here:

  broker.xml:41: left: bridge my-bridge: ha: nodes have no backups: static-connectors lists where the ...
  broker.xml:30: check: connector hub: url: leads to a node of core bridge, no longer to an Artemis ...
  broker.xml:12: idle: journal-type: the journal is one SQLite file in data-directory, ...
  12 left, 3 to check, 20 without a meaning here

left   broker.xml does it, and the settings do not
check  written, for a person to decide: a placeholder, or another meaning
idle   concerns Artemis's own machinery; nothing is lost without it

Placeholders are environment variables (tokens), files (certificates), a transformer, and hosts named
fill-in.invalid; {PROGRAM} validate names those that it cannot accept. Passwords are never shown or written.
docs/migration.md has a table of every element.

examples:
  {PROGRAM} migrate /var/lib/artemis/etc/broker.xml --output settings.toml && {PROGRAM} validate
  {PROGRAM} migrate broker.xml --property artemis.host=broker-1 > settings.toml

exit codes: 0 written, 1 failed, 2 wrong usage, no broker.xml, or a file that is there already; with --strict
3 where something was left or is to be checked
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "migrate",
        parents=[common],
        help="write the settings that stand for an Artemis broker.xml",
        description="Write the settings that stand for a broker.xml of Apache ActiveMQ Artemis.",
        epilog=_EPILOG,
    )
    parser.add_argument("file", metavar="FILE", help="the broker.xml")
    parser.add_argument("--output", metavar="FILE", help="where to (default: stdout)")
    parser.add_argument(
        "--overwrite", action="store_true", help="overwrite --output (default: a file that is there stays)"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with 3 where something was left or is to be checked (default: end with 0)",
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        type=_property,
        metavar="NAME=VALUE",
        help="value of ${NAME} in broker.xml, as -D of Java; any number (default: broker.xml's own)",
    )
    parser.set_defaults(run=run)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE; found {text}")
    if not text.isprintable():  # nor bytes that are no UTF-8
        raise argparse.ArgumentTypeError("must be UTF-8 without control characters")
    return name, value


def run(arguments: argparse.Namespace) -> int:
    """Write the settings; with --strict returns 3 where something was left or is to be checked."""
    from bridge.migrate.document import NotBrokerXml  # late: pydantic is not for --help
    from bridge.migrate.migration import migrate

    output = Path(arguments.output) if arguments.output else None
    try:
        migration = migrate(Path(arguments.file), dict(arguments.property))
    except NotBrokerXml as error:
        warn(f"{PROGRAM}: {error}")
        return Exit.USAGE
    try:
        _write(migration.text, output, overwrite=arguments.overwrite)
    except FileExistsError:
        warn(f"{PROGRAM}: {output}: file exists; --overwrite overwrites it")
        return Exit.USAGE
    except OSError as error:
        if output is None:
            raise
        warn(f"{PROGRAM}: {output}: {str(error.strerror).lower()}")
        return Exit.USAGE
    if output is not None:
        print(f"{output}: written; {PROGRAM} validate names what is to be filled in", flush=True)
    _report(migration)
    return Exit.LEFT if arguments.strict and not migration.is_complete else Exit.OK


def _write(text: str, output: Path | None, *, overwrite: bool) -> None:
    """Write the whole file, or none. Raises: OSError, FileExistsError among them."""
    if output is None:
        sys.stdout.buffer.write(text.encode())  # as TOML demands, whatever the console shows
        sys.stdout.buffer.flush()
        return
    if not overwrite and os.path.lexists(output):
        raise FileExistsError
    with tempfile.NamedTemporaryFile(
        "w", dir=output.parent, prefix=f".{output.name}.", encoding="utf-8", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            if overwrite:
                Path(file.name).replace(output)
            else:
                output.hardlink_to(file.name)
        finally:
            Path(file.name).unlink(missing_ok=True)


def _report(migration: Migration) -> None:
    from bridge.migrate.draft import Kind

    for remark in migration.remarks:
        warn(str(remark))
    warn(
        f"{migration.count(Kind.LEFT)} left, {migration.count(Kind.CHECK)} to check, "
        f"{migration.count(Kind.IDLE)} without a meaning here"
    )
