"""Installs `tests.fakes.lossy_end` as pip would: a package beside the product, found by its entry points.

node = make_node(lossy(tables, "b"), variables=installed(tmp_path))
node.start(LOSSY_END="orders:2-3,7")
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bridge.ends import GROUP

_ROOT: Final = Path(__file__).parents[2]
_ENDS: Final = {"lossy-kafka": "lossy_end:KAFKA", "lossy-ws": "lossy_end:LINK"}


def installed(directory: Path) -> dict[str, str]:
    """Variables of processes that find the package; it is installed below `directory`."""
    site = install(directory / "site", "lossy-end", _ENDS)
    shutil.copy(_ROOT / "tests" / "fakes" / "lossy_end.py", site)
    return {"PYTHONPATH": os.pathsep.join((str(site), str(_ROOT)))}


def install(site: Path, name: str, kinds: Mapping[str, str], version: str = "1.0") -> Path:
    """Write what pip leaves of a package in a directory of packages: its metadata and entry points.

    `kinds`: by scheme, `module:NAME` of the end's kind. Returns `site`.
    """
    information = site / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{scheme} = {value}" for scheme, value in kinds.items()]
    (information / "entry_points.txt").write_text("\n".join((f"[{GROUP}]", *lines, "")))
    return site


def lossy(tables: str, connector: str) -> str:
    """The same settings, with the lossy end at one connector."""
    changed, count = re.subn(rf'(\[connectors\.{connector}\]\nurl = ")', r"\1lossy-", tables)
    assert count == 1, tables
    return changed
