"""The command line: `main` imports the command asked for, and turns every outcome into an exit code.

A command is a module with ``add_parser(subparsers, common)``, which sets ``run=`` to a function of the parsed
arguments that returns the exit code. Only the module of the command that was asked for is imported, so that
`run` starts fast and stays small.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from bridge.cli import options
from bridge.cli.options import HelpFormatter
from bridge.client.exit_codes import EXIT_CODES_HELP, PROGRAM, Exit
from bridge.runtime import log_output

#: Every command: its module, and its summary in a line.
COMMANDS: Final = {
    "init": ("bridge.cli.init", "write a settings file to start from, with every setting explained"),
    "migrate": ("bridge.cli.migrate", "write the settings that stand for an Artemis broker.xml"),
    "run": ("bridge.cli.run", "run the node that a settings file describes, until SIGTERM"),
    "validate": ("bridge.cli.validate", "check a settings file and list every problem at once"),
    "demo": ("bridge.cli.demo", "relay 20,000 real rows through a cut and two kills, and prove it"),
    "send": ("bridge.cli.send", "send the lines of a file or of stdin to an address"),
    "receive": ("bridge.cli.receive", "read messages of an address, with or without a queue"),
    "status": ("bridge.cli.status", "show a running node: readiness, bridges, addresses, queues"),
    "ready": ("bridge.cli.ready", "ask a running node whether it is ready: for health checks"),
    "reload": ("bridge.cli.reload", "let a running node read its settings file again"),
    "start": ("bridge.cli.operate", "start a bridge of a running node"),
    "stop": ("bridge.cli.operate", "stop a bridge; what is queued stays queued"),
    "pause": ("bridge.cli.operate", "pause a bridge; its link stays open"),
    "resume": ("bridge.cli.operate", "let a paused bridge go on"),
    "failback": ("bridge.cli.operate", "take a bridge back to the first of its connectors"),
    "cache": ("bridge.cli.cache", "show, clear or resize the duplicate-ID cache of an address"),
    "dead-letters": ("bridge.cli.dead_letters", "list or resend what bridges could not deliver"),
    "replay": ("bridge.cli.replay", "send again what a reconciliation found lost"),
    "forget": ("bridge.cli.forget", "drop the queues of a bridge that is gone, or a readers' queue"),
    "journal": ("bridge.cli.journal", "decide about a journal that was restored, copied or damaged"),
    "positions": ("bridge.cli.positions", "decide where a stopped bridge goes on"),
    "lanes": ("bridge.cli.lanes", "cut a bridge from Kafka to Kafka into another number of lanes"),
    "reconcile": (
        "bridge.cli.reconcile",
        "compare the delivery logs of both sides with Spark and write a report",
    ),
    "filter": ("bridge.cli.filter", "say which messages a filter's condition takes, or explain it"),
    "drain": ("cluster.commands.drain", "hand everything of a node over to another one of its cluster"),
    "cluster": ("cluster.commands.forget", "forget a node of the cluster that is lost for good"),
    "audit": ("bridge.cli.audit", "compare a Kafka source with its target, record by record"),
}

#: The common options that each command takes; every other one is refused.
TAKES: Final = {
    "run": options.FILE_ONLY,
    **dict.fromkeys(("filter", "migrate"), frozenset[str]()),
    "status": options.AS_BOTH,
    **dict.fromkeys(("demo", "reconcile"), options.RESULTS),
    **dict.fromkeys(("send", "receive"), options.AS_CLIENT),
    **dict.fromkeys(
        (
            *("start", "stop", "pause", "resume", "failback"),
            *("ready", "reload", "cache", "dead-letters", "replay", "drain", "cluster"),
        ),
        options.AS_OPERATOR,
    ),
    **dict.fromkeys(("init", "validate", "forget", "journal", "positions", "lanes", "audit"), options.FILE),
}

#: Set to 1, a failure shows its traceback instead of one line.
TRACEBACK_VARIABLE: Final = "CORE_BRIDGE_TRACEBACK"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. No traceback is shown unless asked for.

    0 done, 1 failed, 2 wrong usage or settings, 130 Ctrl-C, 141 the process that read the output has ended.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from bridge.cli.standard_streams import open_closed

        open_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr: what the console cannot show is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except SystemExit as ended:  # argparse: 0 after --help, 2 after a usage error
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return Exit.BROKEN_PIPE
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        log_output.flush()  # the error is the last line, after the log's
        print(f"{PROGRAM}: {_one_line(error)}", file=sys.stderr)
        return Exit.FAILED
    return code


def _run(arguments: list[str]) -> int:
    command = next((argument for argument in arguments if not argument.startswith("-")), None)
    parsed = build_parser(command).parse_args(arguments)
    wrong = options.text_that_is_not_utf8(parsed)
    if wrong is not None:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return Exit.USAGE
    code: int = parsed.run(parsed)
    return code


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with `command` in full and every other command by name only."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Store-and-forward relay with duplicate detection, driven by one settings file.",
        epilog=(
            f"example:\n  {PROGRAM} demo\n\n{EXIT_CODES_HELP}\n\n{PROGRAM} COMMAND --help explains a command."
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_CommandParser
    )
    chosen = COMMANDS[command][0] if command in COMMANDS else None
    if command is not None and chosen is not None:
        import_module(chosen).add_parser(subparsers, options.common_options(TAKES[command]))
    for name, (module, summary) in COMMANDS.items():
        if module != chosen:
            subparsers.add_parser(name, help=summary)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """A command's parser, which takes no abbreviated options."""

    def __init__(self, *arguments: object, **keywords: object) -> None:
        keywords.setdefault("formatter_class", HelpFormatter)
        keywords.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]


class _Version(argparse.Action):
    """Prints the version; looked up only when asked for."""

    def __init__(self, option_strings: Sequence[str], **_: object) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from bridge.journal.sqlite.database import SQLITE_VERSION
        from bridge.runtime.version import version

        print(f"{PROGRAM} {version()} (SQLite {SQLITE_VERSION})")
        parser.exit()


def _one_line(error: Exception) -> str:
    """An error in one line; an unexpected one with its type and how to see the traceback."""
    from bridge.errors import BridgeError, text_of

    text = " ".join(text_of(error).split())
    if isinstance(error, BridgeError):
        return f"{error.code}: {text}"
    if isinstance(error, OSError):
        return text
    return f"unexpected {type(error).__name__}: {text} ({TRACEBACK_VARIABLE}=1 shows where)"


def _silence_stdout() -> None:
    """Keep the interpreter from reporting the broken pipe again when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
