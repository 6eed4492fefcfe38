from __future__ import annotations

import pytest

from bridge.errors import Conflict
from bridge.relay.lifecycle import Command, State, after

START, STOP, PAUSE, RESUME = Command.START, Command.STOP, Command.PAUSE, Command.RESUME
ACTIVE = (State.STARTING, State.CONNECTING, State.RUNNING, State.WAITING, State.SCHEDULED)


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.PAUSED])
def test_start_begins_anew_from_every_state_of_rest(state: State) -> None:
    """R4, R18"""
    assert after(state, START) is State.STARTING


def test_resume_continues_after_a_pause_and_only_then() -> None:
    """R18"""
    assert after(State.PAUSED, RESUME) is State.STARTING
    for state in (State.STOPPED, State.FAILED, State.STOPPING, State.PAUSING):
        with pytest.raises(Conflict):
            after(state, RESUME)


@pytest.mark.parametrize("state", [State.STOPPING, State.PAUSING])
def test_start_while_stopping_or_pausing_is_an_error(state: State) -> None:
    """R19"""
    with pytest.raises(Conflict, match=f"{state.value} cannot start") as raised:
        after(state, START)
    assert (raised.value.status, raised.value.found) == (409, state.value)


@pytest.mark.parametrize(
    ("state", "command"),
    [
        *((state, command) for state in ACTIVE for command in (START, RESUME)),
        (State.STOPPED, STOP),
        (State.STOPPING, STOP),
        (State.PAUSED, PAUSE),
        (State.PAUSING, PAUSE),
    ],
)
def test_what_is_so_already_changes_nothing(state: State, command: Command) -> None:
    """R19"""
    assert after(state, command) is state


@pytest.mark.parametrize("state", ACTIVE)
def test_stop_and_pause_end_what_is_active(state: State) -> None:
    assert after(state, STOP) is State.STOPPING
    assert after(state, PAUSE) is State.PAUSING


def test_stop_overtakes_a_pause_and_ends_every_rest() -> None:
    assert after(State.PAUSING, STOP) is State.STOPPING
    assert after(State.PAUSED, STOP) is State.STOPPED
    assert after(State.FAILED, STOP) is State.STOPPED


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.STOPPING])
def test_what_does_not_run_cannot_be_paused(state: State) -> None:
    with pytest.raises(Conflict):
        after(state, PAUSE)
