"""A link's end, as those above the link are told of it."""

from __future__ import annotations

import pytest

from bridge.errors import (
    BridgeError,
    Fenced,
    OutOfSequence,
    TargetRefused,
    TargetStopping,
    TargetUnavailable,
)
from bridge.link.machine import Ending
from bridge.link.sending import error_of


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (Ending("TARGET_UNAVAILABLE", "reset by peer", permanent=False), TargetUnavailable("reset by peer")),
        (Ending("STOPPING", "node stops", permanent=False), TargetStopping("STOPPING: node stops")),
        (Ending("TARGET_REFUSED", "no such bridge", permanent=True), TargetRefused("no such bridge")),
        (Ending("VERSION", "speaks 2", permanent=True), TargetRefused("VERSION: speaks 2")),
        (Ending("OUT_OF_SEQUENCE", "next is 7", permanent=False), OutOfSequence("next is 7")),
        (Ending("FENCED", "a newer link", permanent=False), Fenced("a newer link")),
    ],
    ids=lambda given: given.code,
)
def test_the_code_of_an_end_is_named_once(ending: Ending, error: BridgeError) -> None:
    found = error_of(ending)
    assert (type(found), found.code, str(found)) == (type(error), error.code, str(error))
