"""`dedup` as a zip file, as docs/reconcile.md packs it for a cluster."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def pack_dedup(target: Path) -> None:
    """Write `dedup` with all its files, but for what the interpreter has compiled."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted((ROOT / "dedup").rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(ROOT))
