from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bridge.migrate.document import Element, Place
from bridge.migrate.shown import MAX_CONTENT_CHARACTERS, shown_content, shown_text


def element(xml: str) -> Element:
    def converted(one: ET.Element) -> Element:
        found = Element(one.tag, Place("a", 1), dict(one.attrib), text=(one.text or "").strip())
        found.children += [converted(child) for child in one]
        return found

    return converted(ET.fromstring(xml))


@pytest.mark.parametrize(
    ("xml", "what", "shown"),
    [
        ("<a>text</a>", "a", "text"),
        ("<a/>", "a", ""),
        ('<a href="b.xml"/>', "a", "b.xml"),
        ('<a name="n">text</a>', "a n", "text"),
        ('<a name="n">text</a>', "a", "text, name=n"),
        ('<a><b x="1" y="2">t</b><c/></a>', "a", "b=t, x=1, y=2, c"),
        ("<a>tcp://h:1?x=1;password=no;y=2</a>", "a", "tcp://h:1, x=1, password=***, y=2"),
        ("<a>tcp : //h:1 ? x = 1 ; y=2</a>", "a", "tcp://h:1, x=1, y=2"),
        ("<a><password>no</password><user>u</user></a>", "a", "password, user=u"),
        ('<a><p key="dbPassword" value="no"/></a>', "a", "p, key=dbPassword, value=***"),
        ('<p name="dbPassword" value="no"/>', "p dbPassword", "***"),
        ('<a password="no" b="1"/>', "a", "password=***, b=1"),
        ("<a><url>jdbc:derby:x;user=u;password=no</url></a>", "a", "url=jdbc:derby:x;user=u;password=***"),
        ("<a>amqp://user:no@h:1</a>", "a", "amqp://***@h:1"),
    ],
)
def test_an_element_is_shown_in_parts_and_without_secrets(xml: str, what: str, shown: str) -> None:
    assert shown_content(element(xml), what) == shown


def test_what_is_beyond_the_limit_is_counted() -> None:
    many = "".join(f'<permission type="send{number}" roles="amq"/>' for number in range(20))
    shown = shown_content(element(f"<security-setting>{many}</security-setting>"), "")
    assert len(shown) < MAX_CONTENT_CHARACTERS + 20
    parts, more = shown.split(", and ")
    assert len(parts.split(", ")) + int(more.removesuffix(" more")) == 60


def test_a_text_is_one_line_for_a_terminal() -> None:
    assert shown_text("a", "x\n\x1b[31my") == "x [31my"
