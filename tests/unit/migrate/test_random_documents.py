"""Random documents made of real ones: nothing in them is dropped in silence, and TLS never is.

Elements, attributes and parameters of URLs are taken out, doubled and put into another order, blanks are put
between, parts are moved to included files. Then places are taken out, one by one (`places`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from bridge.migrate.migration import migrate
from tests.harness.rounds import rounds
from tests.unit.migrate.places import Files, changes_nothing, is_dropped, outcome, spots
from tests.unit.migrate.test_samples import SECRET

HERE: Final = Path(__file__).parent
_FOUND: Final = (
    *(HERE / "samples").glob("*.xml"),
    *(HERE.parents[1] / "artemis" / "originals").glob("*.xml"),
)
#: But for the part of one that is included.
REAL: Final = sorted(path for path in _FOUND if path.stem != "addresses-more")
MAIN: Final = "broker.xml"
PART: Final = "part.xml"
#: Random documents, and the places that are taken out of each.
DOCUMENTS: Final = 80
PLACES: Final = 3
#: Random URLs.
URLS: Final = 200
#: Most elements of a document below its containers.
MOST: Final = 30
#: Where the elements of `PART` come to be.
OUTER: Final = ("configuration", "core")
INCLUDE: Final = "{http://www.w3.org/2001/XInclude}include"
ET.register_namespace("xi", "http://www.w3.org/2001/XInclude")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def real(path: Path) -> ET.Element:
    """A real file as a tree without namespaces."""
    return ET.fromstring(re.sub(r'\sxmlns="[^"]*"', "", path.read_text("utf-8")))


def bytes_of(root: ET.Element) -> bytes:
    """A tree as a file with a line for each element."""
    copy = deepcopy(root)
    ET.indent(copy)
    return ET.tostring(copy)


# -- what is done to a document ------------------------------------------------------------------------------


def parents(root: ET.Element) -> list[ET.Element]:
    return [element for element in root.iter() if len(element)]


def take_out(root: ET.Element, chance: Random) -> None:
    """An element or an attribute."""
    parent = chance.choice(parents(root))
    child = chance.choice(list(parent))
    if child.attrib and chance.random() < 0.3:
        del child.attrib[chance.choice(list(child.attrib))]
    elif len(child) < MOST:
        parent.remove(child)


def double(root: ET.Element, chance: Random) -> None:
    """An element, or a parameter of a URL."""
    urls = [
        element for element in root.iter() if "?" in (element.text or "") and "://" in (element.text or "")
    ]
    if urls and chance.random() < 0.3:
        url = chance.choice(urls)
        head, _, query = (url.text or "").partition("?")
        parameters = query.split(";")
        parameters.insert(chance.randrange(len(parameters) + 1), chance.choice(parameters))
        url.text = f"{head}?{';'.join(parameters)}"
        return
    parent = chance.choice(parents(root))
    index = chance.randrange(len(parent))
    parent.insert(chance.randrange(len(parent) + 1), deepcopy(parent[index]))


def reorder(root: ET.Element, chance: Random) -> None:
    parent = chance.choice(parents(root))
    children = list(parent)
    chance.shuffle(children)
    parent[:] = children


def put_blanks(root: ET.Element, chance: Random) -> None:
    """Around texts, and anywhere in URLs: Artemis strips both."""
    for element in root.iter():
        text = element.text or ""
        if not text.strip() or chance.random() < 0.5:
            continue
        if element.tag in ("connector", "acceptor"):
            text = re.sub("[=;?:]", lambda mark: f"{blank(chance)}{mark[0]}{blank(chance)}", text)
        element.text = f"{blank(chance)}{text}{blank(chance)}"


def blank(chance: Random) -> str:
    return chance.choice(["", " ", "\n", "\t ", "  "])


CHANGES: Final[tuple[Callable[[ET.Element, Random], None], ...]] = (take_out, double, reorder, put_blanks)


def shortened(root: ET.Element, chance: Random) -> None:
    """Leave so many elements that the document is converted fast."""
    while len(list(root.iter())) > MOST:
        parent = chance.choice(parents(root))
        child = chance.choice(list(parent))
        if len(list(child.iter())) <= MOST // 2:
            parent.remove(child)


def in_parts(root: ET.Element, chance: Random, name: str = PART) -> Files:
    """A document, perhaps with one of its elements in a file of its own, which a property may name."""
    root = deepcopy(root)
    movable = [(parent, child) for parent in root.iter("core") for child in parent if child.tag != INCLUDE]
    if not movable or chance.random() < 0.5:
        return {MAIN: bytes_of(root)}
    parent, child = chance.choice(movable)
    href = chance.choice([name, f"${{part:{name}}}"])
    parent[list(parent).index(child)] = ET.Element(INCLUDE, {"href": href})
    return {MAIN: bytes_of(root), name: bytes_of(child)}


def settings_of(files: Files) -> str:
    """The settings without comments."""
    lines = outcome(files)[0].splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#"))


# -- nothing is dropped --------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, ET.Element, Random]]:
    """A seed, a random document, and its source of chance."""
    for number in range(rounds(DOCUMENTS)):
        seed = f"migrate:{number}"
        chance = Random(seed)
        root = real(chance.choice(REAL))
        if len(parents(root)) > 1:
            shortened(root, chance)
            for _ in range(chance.randrange(1, 5)):
                if parents(root):
                    chance.choice(CHANGES)(root, chance)
        yield seed, root, chance


def test_nothing_of_a_random_document_is_dropped_in_silence() -> None:
    looked_at = 0
    for seed, root, chance in cases():
        files = in_parts(root, chance)
        found = {name: spots(content, () if name == MAIN else OUTER) for name, content in files.items()}
        says_nothing = PART in found and all(map(changes_nothing, found[PART]))
        whole = outcome(files)
        places = [(name, spot) for name, of_file in found.items() for spot in of_file]
        for name, spot in chance.sample(places, min(PLACES, len(places))):
            root_of_part = name == PART and spot.path == OUTER
            if changes_nothing(spot) or root_of_part or (spot.name == "xi:include" and says_nothing):
                continue
            looked_at += 1
            dropped = is_dropped(files, name, spot, whole)
            assert SECRET not in "".join(whole), f"seed {seed}"
            assert not dropped, f"seed {seed}: {spot}\n{files[name].decode()}\n" + "\n".join(whole[1:])
    print(f"{looked_at} places were taken out of documents with the seeds migrate:0 and on")
    assert looked_at > rounds(DOCUMENTS)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_blanks_and_parts_change_no_setting(path: Path) -> None:
    root = real(path)
    chance = Random(f"blanks:{path.stem}")
    whole = settings_of({MAIN: bytes_of(root)})
    with_blanks = deepcopy(root)
    put_blanks(with_blanks, chance)
    assert settings_of({MAIN: bytes_of(with_blanks)}) == whole
    for number in range(3):
        files = in_parts(root, Random(f"parts:{path.stem}:{number}"))
        assert settings_of(files) == whole, files


# -- TLS -----------------------------------------------------------------------------------------------------

NAMES: Final = (
    "sslEnabled", "SSLENABLED", "sslenabled", "SslEnabled", "useDefaultSslContext", "keyStorePath",
    "trustStorePath", "KeyStorePath", "trustStorePassword", "enabledProtocols", "needClientAuth",
    "verifyHost", "sslContext", "sslEnabeld",
)  # fmt: skip
OTHERS: Final = ("tcpNoDelay=true", "protocols=CORE", "connectionTtl=5000", "useEpoll")
VALUES: Final = (
    "true",
    "TRUE",
    "false",
    "",
    "yes",
    "1",
    "${x:true}",
    "${x}",
    "${x:false}",
    "t r u e",
    "a.jks",
)


def random_url(chance: Random) -> tuple[str, bool, bool]:
    """A URL, whether Artemis uses TLS for it, and whether anything in it is about TLS."""
    pairs = [(chance.choice(NAMES), chance.choice(VALUES)) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
    parameters = [f"{blank(chance)}{encoded(name, chance)}{blank(chance)}={value}" for name, value in pairs]
    parameters += chance.sample(OTHERS, chance.randrange(3))
    last = {name: re.sub(r"\s|\$\{x:?|\}", "", value).lower() for name, value in pairs}
    # A shuffle would change which of two equal names is the last one.
    query = f"?{chance.choice(';&').join(parameters)}" if parameters else ""
    place = chance.choice(["hub:61617", "hub", "127.0.0.1:1", "[::1]:5", "localhost"])
    url = f"tcp://{place}{query}"
    form = chance.choice(["plain", "plain", "list", "fragment", "commas"])
    if form == "list":
        url = f"(tcp://{place},tcp://other:2){query}"
    elif form == "fragment":
        url += "#tcp://other:2"
    elif form == "commas":
        url = f"tcp://{place},tcp://other:2{query}"
    about = any(name != "sslEnabled" or last[name] != "false" for name, _ in pairs)
    return url, last.get("sslEnabled") == "true", about


def encoded(name: str, chance: Random) -> str:
    return f"%{ord(name[0]):x}{name[1:]}" if chance.random() < 0.1 else quote(name)


def test_no_url_that_says_anything_of_tls_becomes_a_plain_one_without_a_line_that_says_so() -> None:
    seen = set()
    for number in range(URLS):
        chance = Random(f"tls:{number}")
        url, encrypted, about = random_url(chance)
        what = chance.choice(["connector", "acceptor"])
        document = f'<core><{what}s><{what} name="a">{escape(url)}</{what}></{what}s></core>'
        Path(MAIN).write_text(document, "utf-8")
        migration = migrate(Path(MAIN), {})
        (written,) = re.findall(r'^url = "(wss?)://(?!127.0.0.1:8161)', migration.text, re.MULTILINE)
        assert written == ("wss" if encrypted else "ws"), f"tls:{number}: {url}"
        told = any("without TLS, as in Artemis" in remark.text for remark in migration.remarks)
        assert told == (about and not encrypted), f"tls:{number}: {url}"
        seen.add((what, encrypted, about))
    assert len(seen) == 6
