"""The page in a real browser: it fits, it can be read in every light, and by those who do not see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from dedup.reconcile.page import page
from dedup.reconcile.rows import Facts
from dedup.reconcile.summary import summary
from tests.reconcile import facts as samples
from tests.reconcile.browser import Browser, chromium

pytestmark = pytest.mark.asyncio(loop_scope="module")

PHONE, DESK = 360, 1280
SCREENS: Final = pytest.mark.parametrize(("width", "height"), [(PHONE, 640), (DESK, 800)])
LIGHTS: Final = pytest.mark.parametrize("scheme", ["light", "dark"])
SAMPLES: Final = ("clean", "faulty", "unknown", "hostile")

#: Folded parts count too.
UNFOLD: Final = "document.querySelectorAll('details').forEach(part => part.open = true)"

#: Elements that reach beyond the screen, unless they scroll in a box of their own that fits.
BEYOND: Final = """
[...document.querySelectorAll('body *')].filter(element => {
  const place = element.getBoundingClientRect(), box = element.closest('.scroll');
  const edge = box && box !== element ? Infinity : innerWidth;
  return place.width > 1 && !element.closest('.skip') && (place.right > edge + .5 || place.left < -.5);
}).map(element => element.tagName + ' ' + element.textContent.slice(0, 40))
"""

#: Text whose contrast with the ground behind it is below 4.5, by WCAG 2.2's relative luminance, and drawings
#: below 3; grounds may be translucent. In SVG the text's colour is `fill`.
FAINT: Final = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parse = text => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const ground = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement)
      layers.unshift(parse(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = colour => colour.slice(0, 3).map(value => value / 255)
    .map(value => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [.2126, .7152, .0722][i], 0);
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + .05) / (low + .05);
  };
  const faint = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest('title, desc')) continue;
    const style = getComputedStyle(element);
    const colour = parse(element.ownerSVGElement ? style.fill : style.color);
    const found = contrast(over(colour, ground(element)), ground(element));
    texts += 1;
    if (found < 4.5) faint.push([found.toFixed(2), walk.currentNode.data.slice(0, 40)]);
  }
  for (const bar of document.querySelectorAll('rect.sent, rect.received, circle.dot, .verdict > svg')) {
    const style = getComputedStyle(bar);
    const colour = parse(bar.matches('.verdict > svg') ? style.color : style.fill);
    const found = contrast(colour, ground(bar.parentElement));
    if (found < 3) faint.push([found.toFixed(2), bar.outerHTML.slice(0, 60)]);
  }
  return {texts, faint};
})()
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file for each kind of report."""
    unknown = replace(samples.clean(), flows=[samples.flow(unknown=960)])
    kinds: dict[str, Facts] = {
        "clean": samples.clean(),
        "faulty": samples.faulty(),
        "unknown": unknown,
        "hostile": samples.hostile(),
    }
    directory = tmp_path_factory.mktemp("pages")
    for name, facts in kinds.items():
        (directory / f"{name}.html").write_text(page(facts, summary(facts), samples.MADE), "utf-8")
    return {name: directory / f"{name}.html" for name in kinds}


@SCREENS
@pytest.mark.parametrize("name", SAMPLES)
async def test_nothing_reaches_beyond_the_screen(
    browser: Browser, pages: dict[str, Path], name: str, width: int, height: int
) -> None:
    async with await browser.open(pages[name], width, "light", height) as shown:
        await shown.evaluate(UNFOLD)
        assert await shown.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
        assert await shown.evaluate(BEYOND) == []


@SCREENS
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("clean", "Every message that the logs tell of is accounted for."),
        ("faulty", "24 messages are lost, 3 doubled."),
        ("unknown", "Nothing is known to be lost; the logs leave 960 open to doubt."),
    ],
)
async def test_the_verdict_is_on_the_first_screen(
    browser: Browser, pages: dict[str, Path], name: str, sentence: str, width: int, height: int
) -> None:
    async with await browser.open(pages[name], width, "light", height) as shown:
        text, top, bottom = await shown.evaluate(
            "(h => [h.innerText, h.getBoundingClientRect().top, h.getBoundingClientRect().bottom])"
            "(document.querySelector('h1'))"
        )
        assert text == sentence
        assert 0 < top < bottom < height


@SCREENS
@LIGHTS
@pytest.mark.parametrize("name", SAMPLES)
async def test_every_text_stands_out_from_what_is_behind_it(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str, width: int, height: int
) -> None:
    async with await browser.open(pages[name], width, scheme, height) as shown:
        await shown.evaluate(UNFOLD)
        found = await shown.evaluate(FAINT)
        assert found["texts"] > 50
        assert found["faint"] == []


async def test_dark_is_dark_and_light_is_light(browser: Browser, pages: dict[str, Path]) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        async with await browser.open(pages["clean"], DESK, scheme) as shown:
            grounds.append(await shown.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(int(part) for part in ground[4:-1].split(",")) for ground in grounds)
    assert light > 600
    assert dark < 100


@SCREENS
async def test_whoever_does_not_see_the_page_is_told_all_of_it(
    browser: Browser, pages: dict[str, Path], width: int, height: int
) -> None:
    async with await browser.open(pages["faulty"], width, "light", height) as shown:
        await shown.evaluate(UNFOLD)
        assert await shown.evaluate("document.documentElement.lang") == "en"
        nodes = await shown.accessible()
    roles: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        roles.setdefault(node["role"], []).append(node)
    assert [len(roles[role]) for role in ("banner", "main", "contentinfo", "navigation")] == [1, 1, 1, 1]
    assert roles["navigation"][0]["name"] == "Sections"
    assert roles["RootWebArea"][0]["name"] == "lost: 24 messages are lost, 3 doubled – core bridge"
    headings = [node["name"] for node in roles["heading"]]
    assert headings[:3] == ["24 messages are lost, 3 doubled.", "Bridges", "Findings"]
    # A style that makes cards of rows must not take the table away.
    assert len(roles["table"]) >= 12
    assert all(node["name"] for node in roles["table"])
    assert {"Positions", "Messages", "SHA-256"} <= {node["name"] for node in roles["columnheader"]}
    assert "orders-to-hub" in {node["name"] for node in roles["rowheader"]}
    assert "24" in " ".join(node["name"] for node in roles["cell"])
    images = [*roles.get("image", []), *roles.get("img", [])]
    assert len(images) == 2 + 5, "two time lines, five delivery times"
    assert all(node["name"] for node in images)
    names = "\n".join(node["name"] for node in images)
    assert "eu-to-us Messages in each hour, 14 columns from 2026-11-21 08:00 UTC; sent 1,176,000" in names
    assert "p50 8 ms, p90 19 ms, p99 43 ms, p99.9 120 ms, max 2.1 s" in names


async def test_the_keyboard_alone_goes_through_the_page(browser: Browser, pages: dict[str, Path]) -> None:
    focused = "(e => e.tagName + ' ' + (e.ariaLabel || e.innerText))(document.activeElement)"
    async with await browser.open(pages["faulty"], DESK, "light") as shown:
        await shown.press("Tab")
        assert await shown.evaluate(focused) == "A Skip to the verdict"
        assert await shown.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        reached = []
        for _ in range(60):
            await shown.press("Tab")
            reached.append(await shown.evaluate(focused))
        assert "A Bridges" in reached
        assert "DIV Messages of each bridge" in reached, "a box that may scroll can be scrolled"
        assert any(place.startswith("SUMMARY Out of order") for place in reached)


async def test_what_a_log_smuggles_in_neither_runs_nor_becomes_an_element(
    browser: Browser, pages: dict[str, Path]
) -> None:
    async with await browser.open(pages["hostile"], DESK, "light") as shown:
        assert await shown.evaluate("document.scripts.length") == 0
        assert await shown.evaluate("performance.getEntriesByType('resource').length") == 0
        assert "<script>alert(1)</script>" in await shown.evaluate("document.body.innerText")
        assert await shown.evaluate("[...document.body.children].map(part => part.tagName).join()") == (
            "A,HEADER,MAIN,FOOTER"
        )
