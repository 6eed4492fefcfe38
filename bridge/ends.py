"""The registry of ends: the module of the kind of end for each scheme of URLs.

The only place that lists them. It knows names of modules and loads them when a bridge, or a rule of the
settings, asks for one: a node without Kafka never loads Kafka's client. The interface of a kind is
`bridge.end_kind.EndKind`; here it is any object, because the types that it uses are in higher layers.

Installed packages add ends by an entry point of the group `GROUP`, named by the scheme (docs/ends.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from bridge.errors import BridgeError, described
from bridge.runtime.foreign_code import LOAD_TIMEOUT_MS, load_within

#: Entry points of this group are ends: ``amqp = "some_package.end:END"``.
GROUP: Final = "core_bridge.ends"
#: The name of this node's own journal in place of a URL's scheme. No URL leads there.
JOURNAL: Final = "journal"


class EndUnusable(BridgeError):
    """No kind of end has this scheme, or its module cannot be loaded."""

    code = "END_UNUSABLE"


@dataclass(frozen=True, slots=True)
class _Registered:
    #: ``module:attribute`` of the kind.
    place: str
    #: The form of its URLs; empty: no URL leads to it.
    form: str


_registered: dict[str, _Registered] = {
    JOURNAL: _Registered("bridge.journal.end:KIND", ""),
    "ws": _Registered("bridge.link.end:KIND", "ws://host:port"),
    "wss": _Registered("bridge.link.end:KIND", "wss://host:port"),
    "kafka": _Registered("bridge.kafka.end:KIND", "kafka://host:port,host:port"),
}
#: The loaded kinds, by scheme: at most as many as there are schemes in valid settings.
_loaded: dict[str, Any] = {}


def register(scheme: str, place: str, form: str = "") -> None:
    """Add a kind of end to this process.

    Args:
        scheme: of its URLs; no other end has it.
        place: ``module:attribute`` of a `bridge.end_kind.EndKind`.
        form: how its URLs are written; empty: ``scheme://...``.

    Raises:
        EndUnusable: an end of this name exists.
    """
    if scheme in _registered:
        raise EndUnusable(f"there is an end for {scheme}:// already", key="scheme", found=scheme)
    _registered[scheme] = _Registered(place, form or f"{scheme}://...")


def forget(scheme: str) -> None:
    """Undo `register`."""
    _registered.pop(scheme, None)
    _loaded.pop(scheme, None)


def kind(scheme: str) -> Any:
    """The `bridge.end_kind.EndKind` of a scheme, or of `JOURNAL`. Loads its module at the first call.

    Raises:
        EndUnusable: there is none, or it cannot be loaded.
    """
    found = _loaded.get(scheme)
    if found is None:
        found = _loaded[scheme] = _load(scheme, _place(scheme))
    return found


def url_rule() -> str:
    """The rule of the settings for the URL of a connector. Loads no module of an end."""
    forms = [one.form for one in _registered.values() if one.form]
    forms += [f"{scheme}://..." for scheme, _ in _installed() if scheme not in _registered]
    return f"must be {', '.join(forms[:-1])} or {forms[-1]}"


def _installed() -> Sequence[tuple[str, str]]:
    """Scheme and place of the ends of installed packages, sorted.

    Read only where a scheme is not registered: it takes some ms, and the library that reads packages'
    metadata some MB.
    """
    from importlib.metadata import entry_points

    return sorted({(point.name, point.value) for point in entry_points(group=GROUP)})


def _place(scheme: str) -> str:
    """The place of the kind of a scheme. Raises: EndUnusable: nowhere, or in two packages."""
    registered = _registered.get(scheme)
    if registered is not None:
        return registered.place
    found = [place for name, place in _installed() if name == scheme]
    if not found:
        raise EndUnusable(url_rule(), key="url", found=scheme)
    if len(found) > 1:
        raise EndUnusable(
            f"must be the scheme of one end; installed packages have {len(found)} for {scheme}://:"
            f" {', '.join(found)}",
            key="url",
            found=scheme,
        )
    return found[0]


def _load(scheme: str, place: str) -> Any:
    module, _, attribute = place.partition(":")

    def load() -> Any:
        return attrgetter(attribute)(importlib.import_module(module))

    try:
        if scheme in _registered:
            return load()
        return load_within(f"end for {scheme}://", load, LOAD_TIMEOUT_MS, details=place)
    except Exception as error:  # any error that the module of another package raises
        why = described(error)
        raise EndUnusable(
            f"the end for {scheme}:// cannot be loaded from {place}: {why}", key="url", found=scheme
        ) from error
