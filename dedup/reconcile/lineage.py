"""Determines which openings of a journal belong to one life of it; pure.

A journal that is put back from a backup goes on from an earlier line than the lost one did. Each opening of a
journal is a session, which names the line that it went on from. So the sessions of a store are a tree: where
two branches leave a session at different lines, the store has had several lives, of which one is there now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

#: The bound of a life's newest session: all of its lines.
ALL: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Session:
    """An opening of a journal, as its lines show it."""

    id: str
    #: The session and the number of the line that it went on from; None: it was the first.
    after: tuple[str, int] | None
    #: Numbers of its first and its last received line that were found; None: it has none.
    first: int | None
    last: int | None
    #: When the target committed the newest of them, ms since the epoch; 0: not known.
    committed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """Lines that one and the same journal has held: of each session those up to a number."""

    upto: Mapping[str, int]
    #: When the newest line of its newest session was committed.
    committed_ms: int
    #: False: it only says that what it shares no line with may be of another journal.
    is_firm: bool = True


def lives(found: Iterable[Session]) -> list[Life]:
    """The lives of a store, at least one of them firm where a session has lines.

    A session of which no line was found hides where it came from. Most often it went on from the lines
    before it, and so it is taken; but then two copies of a message, one on either side of it, need not be
    two copies at one target. A second life, without what is before, says so.

    Args:
        found: all sessions of the store's journal that any line names as its own.
    """
    sessions = {session.id: session for session in found}
    children = defaultdict[str, list[Session]](list)
    for session in sessions.values():
        if session.after is not None:
            children[session.after[0]].append(session)
    leaves = [each for each in sessions.values() if each.last is not None and _is_leaf(each, children)]
    firm: list[Life] = []
    loose: list[Life] = []
    for path in sorted((_path(leaf, sessions) for leaf in leaves), key=lambda path: path.begins):
        alone = Life(path.upto, path.committed_ms)
        pasts = [_until(life, path.begins, sessions) for life in firm] if path.is_hidden else []
        wholes = [Life({**past, **path.upto}, path.committed_ms) for past in pasts if past]
        if wholes:
            loose.append(replace(alone, is_firm=False))
        firm += [life for life in wholes or [alone] if life not in firm]
    return _without_parts(firm, sessions) + loose


def _until(life: Life, number: int, sessions: Mapping[str, Session]) -> Mapping[str, int]:
    """The sessions of a life that have lines up to `number`, and up to which."""
    kept: dict[str, int] = {}
    for name, upto in life.upto.items():
        first = sessions[name].first
        if first is not None and first <= min(upto, number):
            kept[name] = min(upto, number)
    return kept


@dataclass(frozen=True, slots=True)
class _Path:
    """A session and all that it goes back to."""

    upto: Mapping[str, int]
    committed_ms: int
    #: Whether the oldest session goes back to one that is not known; and the number that it went on from.
    is_hidden: bool
    begins: int


def _path(leaf: Session, sessions: Mapping[str, Session]) -> _Path:
    upto = {leaf.id: ALL}
    after = leaf.after
    while after is not None and after[0] in sessions and after[0] not in upto:
        upto[after[0]] = after[1]
        after = sessions[after[0]].after
    return _Path(upto, leaf.committed_ms, after is not None, after[1] if after is not None else 0)


def _is_leaf(session: Session, children: Mapping[str, Sequence[Session]]) -> bool:
    """Whether no session that has lines goes on from its last line or later ones."""
    assert session.last is not None
    own = children.get(session.id, ())
    later = [child for child in own if child.after is not None and child.after[1] >= session.last]
    seen = {session.id}
    while later:
        child = later.pop()
        if child.id in seen:
            continue
        if child.last is not None:
            return False
        seen.add(child.id)
        later += children.get(child.id, ())
    return True


def _without_parts(whole: Sequence[Life], sessions: Mapping[str, Session]) -> list[Life]:
    """The lives of which no other one has all lines."""
    lines = [_reached(life, sessions) for life in whole]

    def is_part(at: int) -> bool:
        return any(
            all(lines[other].get(name, -1) >= upto for name, upto in lines[at].items())
            and (lines[other] != lines[at] or other < at)
            for other in range(len(lines))
            if other != at
        )

    return [life for at, life in enumerate(whole) if not is_part(at)]


def _reached(life: Life, sessions: Mapping[str, Session]) -> Mapping[str, int]:
    """The number of the last line that was found of each of its sessions."""
    found = ((name, upto, sessions[name]) for name, upto in life.upto.items())
    return {
        name: min(upto, session.last)
        for name, upto, session in found
        if session.first is not None and session.last is not None and session.first <= upto
    }
