"""Installs `tests.fakes.lossy_end` as pip would: a package beside the product, found by its entry points.

node = make_node(lossy(tables, "b"), variables=installed(tmp_path))
node.start(LOSSY_END="orders:2-3,7")
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from bridge.ends import GROUP

_HERE: Final = Path(__file__).parent
_METADATA: Final = "Metadata-Version: 2.1\nName: lossy-end\nVersion: 1.0\n"
_ENTRY_POINTS: Final = f"[{GROUP}]\nlossy-kafka = lossy_end:KAFKA\nlossy-ws = lossy_end:LINK\n"


def installed(directory: Path) -> dict[str, str]:
    """Variables of processes that find the package; it is installed below `directory`."""
    site = install(directory / "site", "lossy_end", _METADATA, _ENTRY_POINTS)
    shutil.copy(_HERE / "fakes" / "lossy_end.py", site)
    return {"PYTHONPATH": os.pathsep.join((str(site), str(_HERE.parent)))}


def install(site: Path, name: str, metadata: str, entry_points: str) -> Path:
    """The metadata of a package, as pip leaves it in a directory of packages."""
    information = site / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(metadata)
    (information / "entry_points.txt").write_text(entry_points)
    return site


def lossy(tables: str, connector: str) -> str:
    """The same settings, with the lossy end at one connector."""
    changed, count = re.subn(rf'(\[connectors\.{connector}\]\nurl = ")', r"\1lossy-", tables)
    assert count == 1, tables
    return changed
