"""A long broker.xml takes as much longer to convert as it is longer: work is counted, not time."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bridge.migrate.migration import migrate

#: Twice as many elements may take so many times the calls; where each looks at all others it is nearly four.
MOST_CALLS: Final = 2.4
#: Elements of the shorter file.
COUNT: Final = 400


def address_settings(number: int) -> str:
    """Every other pattern lacks the key that the others have, so the rest of them is looked through."""
    key = "address-full-policy" if number % 2 else "max-size-bytes"
    value = "BLOCK" if number % 2 else "1M"
    return f'<address-setting match="a{number}.#"><{key}>{value}</{key}></address-setting>'


def refused_address(number: int) -> str:
    """Names that begin with $ are the node's own."""
    return f'<address name="$a{number}"><multicast/></address>'


def refused_bridge(number: int) -> str:
    """Its connector is not there, either."""
    return (
        f'<bridge name="$b{number}"><queue-name>q</queue-name><static-connectors>'
        "<connector-ref>c</connector-ref></static-connectors></bridge>"
    )


def calls(path: Path) -> int:
    """How many functions are called, those of C included, while a file is converted."""
    profile = cProfile.Profile()
    profile.runcall(migrate, path, {})
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize(
    ("list_of", "element"),
    [
        ("address-settings", address_settings),
        ("addresses", refused_address),
        ("bridges", refused_bridge),
    ],
)
def test_twice_as_many_elements_take_twice_the_work(
    list_of: str, element: Callable[[int], str], tmp_path: Path
) -> None:
    path = tmp_path / "broker.xml"

    def calls_for(count: int) -> int:
        elements = "".join(map(element, range(count)))
        path.write_text(f"<core><{list_of}>{elements}</{list_of}></core>", "utf-8")
        return calls(path)

    calls_for(1)  # what is done once is done
    assert calls_for(2 * COUNT) < MOST_CALLS * calls_for(COUNT)
