"""``python -m bridge`` is ``core-bridge``: the program, from its first instant."""

from __future__ import annotations

import sys

from bridge.runtime import signals


def main() -> int:
    """Run the command line. The signals of a node are taken before anything slow is imported."""
    if next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "") == "run":
        signals.hold()
    from bridge.cli import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
