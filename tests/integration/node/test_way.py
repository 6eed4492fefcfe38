"""The way of a message in docs/architecture.md is the way that a message takes."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import aiohttp
import pytest

from bridge.assembly.credentials import Credentials
from bridge.demo.ports import free_ports
from bridge.node import reload
from bridge.node.node import Node
from bridge.node.wiring import made_node
from bridge.settings import SettingsFile, load
from tests.harness.eventually import until

ROOT: Final = Path(__file__).parents[3]
#: What every room may use, so that no step names it: clock, metrics, fault injection.
ANYWHERE: Final = "bridge/runtime"

HUB = """
[node]
name = "hub"
data-directory = "hub"
[acceptor]
url = "ws://127.0.0.1:{port}"
[operations]
url = "http://127.0.0.1:0"
"""
EDGE = """
[node]
name = "edge"
data-directory = "edge"
[acceptor]
url = "ws://127.0.0.1:{own}"
[operations]
url = "http://127.0.0.1:0"
[connectors.hub]
url = "ws://127.0.0.1:{port}"
[[bridges]]
name = "to-hub"
queue-name = "orders"
static-connectors = ["hub"]
"""


def room(file: str) -> str:
    """``bridge/journal`` of ``bridge/journal/rules/moves.py``; `dedup` is one room."""
    return "dedup" if file.startswith("dedup/") else "/".join(file.split("/")[:2])


def rooms_of_the_steps() -> set[str]:
    """The rooms of the first table below "The way of a message"."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.partition("## The way of a message")[2].partition("**Kafka**")[0]
    files = [row.split(" | ")[1] for row in table.splitlines() if re.match(r"\| \d+ ", row)]
    named = [
        name for cell in files for name in re.findall(r"`((?:bridge|dedup)/[\w/.]*|delivery_log/)`", cell)
    ]
    return {room(name.replace("delivery_log/", "bridge/delivery_log/x")) for name in named}


class Way:
    """The files of the product whose functions are called."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.looks = False

    def see(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.looks and event == "call":
            name = frame.f_code.co_filename
            if name.startswith((f"{ROOT}/bridge/", f"{ROOT}/dedup/")):
                self.files.add(name.removeprefix(f"{ROOT}/"))


@contextmanager
def seen() -> Iterator[Way]:
    """Records the calls of this thread, and of each thread that starts while the context is open."""
    way, before = Way(), sys.getprofile()
    threading.setprofile(way.see)
    sys.setprofile(way.see)
    try:
        yield way
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def lines(directory: Path) -> int:
    """Lines of the delivery log below the directory."""
    return sum(path.read_bytes().count(b"\n") for path in directory.rglob("*.jsonl*"))


async def started(directory: Path, settings: str, stack: AsyncExitStack) -> Node:
    file = directory / "settings.toml"
    file.write_text(settings)
    loaded = load(file, {})
    node = made_node(loaded, SettingsFile(file, {}), Credentials(loaded))
    stack.push_async_callback(node.stop)
    await node.start()
    return node


async def test_a_message_passes_the_rooms_that_the_document_names_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "LOOK_S", 60.0)  # a look at the settings' files is no part of the way
    own, port = free_ports(2)
    async with AsyncExitStack() as stack:
        way = stack.enter_context(seen())
        for name in ("hub", "edge"):
            (tmp_path / name).mkdir()
        hub = await started(tmp_path / "hub", HUB.format(port=port), stack)
        await started(tmp_path / "edge", EDGE.format(own=own, port=port), stack)
        client = await stack.enter_async_context(aiohttp.ClientSession())

        async def post() -> None:
            url = f"http://127.0.0.1:{own}/v1/addresses/orders/messages"
            async with client.post(url, data=b"x", headers={"Duplicate-Id": str(posted)}) as reply:
                assert reply.status == 200

        async def arrived() -> bool:
            assert hub.journal is not None
            return [status.next for status in await hub.journal.addresses()] == [posted]

        for posted in (1, 2):  # the first one makes the address and opens the stream
            way.looks = posted == 2
            await post()
            await until(arrived, f"{posted} at the hub")
        await until(lambda: lines(tmp_path / "hub") == posted, "its line is in a file")
        way.looks = False
    assert set(map(room, way.files)) - {ANYWHERE} == rooms_of_the_steps(), sorted(way.files)
