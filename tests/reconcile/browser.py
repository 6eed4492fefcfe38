"""A headless Chromium, driven over the DevTools protocol by aiohttp's websocket client."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

#: What Debian, Ubuntu and others call it.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
#: Nothing goes out: no updates, no synchronisation, no lookups.
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
#: For the browser's start and each of its answers, on a loaded machine.
PATIENCE_S: Final = 60
#: Largest answer: a screenshot of a long page.
MAX_ANSWER: Final = 64 << 20
_ADDRESS: Final = re.compile(rb"DevTools listening on (ws://\S+)")


class Browser:
    """One browser with one connection; `Page`s are sessions on it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are dropped."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        await self._socket.send_json(message)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == self._number:
                    assert "error" not in answer, f"{method}: {answer}"
                    result: dict[str, Any] = answer["result"]
                    return result

    async def open(self, path: Path, width: int, scheme: str, height: int = 800) -> Page:
        """A file in a new tab of `width` CSS pixels, in ``light`` or ``dark``."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = Page(self, target, session)
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        await page.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        await page.call("Page.navigate", url=path.as_uri())
        await page.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done() : "
            "addEventListener('load', done))"
        )
        return page


class Page:
    """A tab; closed at the end of ``async with``."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._browser.call("Target.closeTarget", targetId=self._target)

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """A command to this tab."""
        return await self._browser.call(method, self._session, **parameters)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; DevTools may run script although the page may not."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def accessible(self) -> list[dict[str, Any]]:
        """The accessibility tree's nodes, flat, without those that are ignored."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                "description": node.get("description", {}).get("value", ""),
            }
            for node in nodes
            if not node["ignored"]
        ]

    async def press(self, key: str) -> None:
        """Press and release a key such as ``Tab``."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9)

    async def picture(self, *, whole: bool) -> bytes:
        """A PNG of the first screen, or of the whole page."""
        answer = await self.call(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=whole,
            **(
                {"clip": {**(await self.call("Page.getLayoutMetrics"))["cssContentSize"], "scale": 1}}
                if whole
                else {}
            ),
        )
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with an empty profile; ended with all its processes whatever happens."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert program is not None, "the tests need Chromium (Debian and Ubuntu: apt install chromium)"
    profile = await asyncio.to_thread(tempfile.mkdtemp, prefix="core-bridge-chromium-")
    process = await asyncio.create_subprocess_exec(
        program,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    reader: asyncio.Task[None] | None = None
    try:
        assert process.stderr is not None
        address = await _address(process.stderr)
        reader = asyncio.create_task(_drain(process.stderr))
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(address, max_msg_size=MAX_ANSWER) as socket,
        ):
            yield Browser(socket)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
        await process.wait()
        if reader is not None:
            await reader
        await asyncio.to_thread(shutil.rmtree, profile, ignore_errors=True)


async def _address(stderr: asyncio.StreamReader) -> str:
    said = []
    async with asyncio.timeout(PATIENCE_S):
        while line := await stderr.readline():
            said.append(line)
            if match := _ADDRESS.search(line):
                return match[1].decode()
    raise AssertionError(f"the browser ended at its start: {b''.join(said).decode(errors='replace')}")


async def _drain(stderr: asyncio.StreamReader) -> None:
    while await stderr.read(1 << 16):
        pass
