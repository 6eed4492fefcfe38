"""The errors with which reconcile ends, for a person."""

from __future__ import annotations


class ReconcileError(Exception):
    """Base of all; its text is one line for a person."""


class BadInput(ReconcileError):
    """The input cannot be reconciled: a path, a file, a line. Exit code 2.

    The text names the place, the rule and what was found there.
    """


class NoSpark(ReconcileError):
    """Spark cannot start here: no Java, or one that is too old. Exit code 2."""


class NotInstalled(ReconcileError):
    """A package of the extra ``reconcile`` is missing. Exit code 2."""
