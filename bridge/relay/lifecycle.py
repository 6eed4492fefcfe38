"""A bridge's states, and the commands that each of them takes. Pure.

Where Artemis's pause could never be resumed (semantics.md R18), a bridge here continues with both `resume`
and `start`.
"""

from __future__ import annotations

from enum import Enum

from bridge.errors import Conflict


class State(Enum):
    """The states; operations and metrics show their names."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    CONNECTING = "CONNECTING"
    RUNNING = "RUNNING"
    #: A session is on, and the target takes no more now: its address or disk is full, for example.
    WAITING = "WAITING"
    #: Outside the hours of its `schedule`: no session, and no trouble. It goes on at the next opening.
    SCHEDULED = "SCHEDULED"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    FAILED = "FAILED"


class Command(Enum):
    """The commands of an operator."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    #: As PAUSE, of a bridge that was paused when its node stopped.
    STAY_PAUSED = "stay-paused"
    #: Back to the first of its connectors: the state stays.
    FAILBACK = "failback"


_CONNECTING = (State.STARTING, State.CONNECTING, State.RUNNING, State.WAITING)
_ACTIVE = (*_CONNECTING, State.SCHEDULED)

#: Command and state -> state to go to; the same state: nothing to do; missing: refused.
_TABLE: dict[Command, dict[State, State]] = {
    Command.START: {
        State.STOPPED: State.STARTING,
        State.FAILED: State.STARTING,
        State.PAUSED: State.STARTING,
        **{state: state for state in _ACTIVE},
    },
    Command.STOP: {
        **dict.fromkeys(_ACTIVE, State.STOPPING),
        State.PAUSED: State.STOPPED,
        State.FAILED: State.STOPPED,
        State.STOPPED: State.STOPPED,
        State.STOPPING: State.STOPPING,
        State.PAUSING: State.STOPPING,
    },
    Command.PAUSE: {
        **dict.fromkeys(_ACTIVE, State.PAUSING),
        State.PAUSED: State.PAUSED,
        State.PAUSING: State.PAUSING,
    },
    Command.STAY_PAUSED: {State.STOPPED: State.PAUSING},
    Command.RESUME: {
        State.PAUSED: State.STARTING,
        **{state: state for state in _ACTIVE},
    },
    Command.FAILBACK: {state: state for state in _CONNECTING},
}


def after(state: State, command: Command) -> State:
    """The state that `command` leads to from `state`.

    Raises:
        Conflict: the state forbids it, e.g. start while stopping (Artemis's AMQ229255, semantics.md R19).
    """
    target = _TABLE[command].get(state)
    if target is None:
        raise Conflict(
            f"a bridge that is {state.value} cannot {command.value}", key="state", found=state.value
        )
    return target
