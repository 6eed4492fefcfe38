"""Texts that others send, for which an expression that goes back would take minutes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

TEXTS = {
    "an unknown key that looks like places": """
import json
from bridge.errors import Malformed
from bridge.http.codec import Decoder, ReplayRequest
try:
    Decoder(ReplayRequest).decode(json.dumps({" - at `$" * 100_000 + chr(10): 1}).encode(), msgpack=False)
except Malformed:
    print("done")
""",
    "a content type of slashes": """
from bridge.http.messages import _SAFE_CONTENT_TYPE
print("done" if not _SAFE_CONTENT_TYPE.fullmatch(b"/" * 1_000_000 + bytes([233])) else "")
""",
    "digits that are no number": """
from bridge.filters.values import java_double, java_integer, header_number
text = "9" * 1_000_000 + "x"
print("done" if java_double(text) is java_integer(text, 0, 1) is header_number(text) is None else "")
""",
}


@pytest.mark.parametrize("code", TEXTS.values(), ids=TEXTS)
def test_a_long_text_is_read_in_one_pass(code: str) -> None:
    # In a process of its own, which is killed where the expression goes back.
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "done\n"
