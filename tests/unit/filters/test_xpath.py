"""XPATH looks into an XML body by the rules of XPath 1.0: axes, predicates, functions, numbers."""

from __future__ import annotations

import pytest

from bridge.filters import System, parse

ORDER = (
    '<o:order xmlns:o="urn:orders" xml:lang="en-GB" total="12.5"><!-- first --><?note paid?>'
    "<line no='1'>tea</line><line no='2'>milk</line><gift> for   you <card>7</card></gift></o:order>"
)


def has(path: str, body: str | None = ORDER) -> bool:
    quoted = path.replace("'", "''")
    found = parse(f"XPATH '{quoted}'")
    assert found is not None
    return found.matches({}, System(body=body))


@pytest.mark.parametrize(
    "path",
    [
        "/*", "//line", "/*/line[2]", "//line[last()] = 'milk'", "//line[position() = 1] = 'tea'",
        "//line[@no='2']", "//@no", "//@no = 1", "/*/gift/card", "//card > 6", "//line | //card", "//line/..",
        "count(//line) = 2", "count(//*) > 3", "//line[1]/following-sibling::gift",
        "//gift/preceding-sibling::line[1] = 'milk'", "//card/ancestor::gift",
        "//card/ancestor-or-self::card",
        "/descendant::card", "/descendant-or-self::node()/card", "//line/following::card",
        "//card/preceding::line", "//self::gift", "//processing-instruction()",
        "//processing-instruction('note')", "//text()[contains(., 'il')]", "//line and not(//nothing)",
        "//nothing or //gift", "local-name(/*) = 'order'", "name(/*) = 'o:order'",
        "namespace-uri(/*) = 'urn:orders'", "string(//line) = 'tea'", "string-length(//line) = 3",
        "normalize-space(//gift) = 'for you 7'", "substring('12345', 2, 3) = '234'",
        "substring('12345', 1.5, 2.6) = '234'", "substring('12345', 0, 3) = '12'",
        "substring('12345', 0 div 0) = ''", "substring-before('a-b', '-') = 'a'",
        "substring-after('a-b', '-') = 'b'", "substring-after('ab', '') = 'ab'", "starts-with('ab', 'a')",
        "translate('bar', 'abc', 'AB') = 'BAr'", "concat('a', 'b', 1) = 'ab1'", "boolean(//line)", "true()",
        "number('12') = 12", "number(//card) + 1 = 8", "sum(//line/@no) = 3", "floor(1.7) = 1",
        "ceiling(1.2) = 2", "round(2.5) = 3", "round(-2.5) = -2", "1 div 0 > 5", "5 mod 2 = 1", "2 * 3 = 6",
        "-1 < 0", "'1' = 1", "//line != //card", "//line[lang('en')]", "not(lang('de'))",
        "//line[. = 'tea']",
        "/*[@total >= 12.5]", "//card * 2 = 14", "string(1 div 0) = 'Infinity'", "string(0.5) = '0.5'",
    ],
)  # fmt: skip
def test_what_a_path_finds(path: str) -> None:
    assert has(path)


@pytest.mark.parametrize(
    "path",
    [
        "//nothing", "/line", "//line[3]", "//line[@no='3']", "//card < 7", "count(//line) = 3", "false()",
        "not(//line)", "//line/following-sibling::nothing", "//card/following::line", "'a' = 1", "0", "''",
        "id('a')", "//line = //card", "contains('ab', 'c')", "//line[lang('de')]", "//comment()",
        "string-length('') > 0", "number('x') = number('x')", "1 != 1", "substring-before('ab', '-') = 'a'",
        "//@no/following-sibling::*", "/..",
    ],
)  # fmt: skip
def test_what_a_path_does_not_find(path: str) -> None:
    assert not has(path)


@pytest.mark.parametrize("body", [None, "", "no XML", "<a", "<a></b>", "\x00"])
def test_a_body_that_is_no_xml_has_nothing(body: str | None) -> None:
    assert not has("//line", body)
    assert not has("true()", body)
