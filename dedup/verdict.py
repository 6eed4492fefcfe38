"""The four answers of a target about a batch."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """A target's answer; no conclusion is ever drawn from a missing one."""

    #: Stored and durable, as far as it was not covered before.
    STORED = "stored"
    #: Everything it covers was covered before; its first copy is durable.
    DUPLICATE = "duplicate"
    #: Never to be stored: names one position and the rule. Nothing of the batch was stored.
    REFUSED = "refused"
    #: Nothing stored and nothing remembered: try again later.
    NOT_NOW = "not-now"
