"""The language by its areas: words, comparisons, absent values, arithmetic, LIKE, IN, prefixes, fields."""

from __future__ import annotations

import pytest

from bridge.filters import Byte, Char, Filter, FilterRefused, Float, Long, Short, System, Value, parse


def made(condition: str) -> Filter:
    found = parse(condition)
    assert found is not None
    return found


def matches(condition: str, **properties: Value) -> bool:
    return made(condition).matches(properties)


def refusal(condition: str) -> FilterRefused:
    with pytest.raises(FilterRefused) as refused:
        parse(condition)
    return refused.value


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\x00 "])
def test_an_empty_condition_is_no_filter(blank: str) -> None:
    assert parse(blank) is None


# -------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("condition", "line", "column", "words"),
    [
        ("x =", 1, 4, "expected a name, a text, a number or a condition; found the end"),
        ("x = 1 AND\n  y == 2", 2, 6, "found ="),
        ("x = 1\r\n\r\nAND )", 3, 5, "found )"),
        ("  convert_string_expressions:x ! 1", 1, 32, "cannot hold '!'"),
        ("x = 'abc", 1, 5, "the text or name that begins with ' does not end"),
        ("x IN ('a' 'b')", 1, 11, "expected ')' or ','; found 'b'"),
        ("x LIKE y", 1, 8, "expected a text in single quotes; found y"),
        ("(x = 1", 1, 7, "found the end"),
        ("x = NULL", 1, 5, "use IS NULL"),
        ("x > 'a'", 1, 5, "only numbers and properties can be compared with >"),
        ("x BETWEEN TRUE AND 5", 1, 11, "only numbers and properties"),
        ("5 IN ('a')", 1, 1, "only a name can stand left of IN; found a literal"),
        ("x LIKE 'a' ESCAPE 'ab'", 1, 19, "ESCAPE must be one character; found 'ab'"),
        ("x + 1", 1, 1, "must be true or false; found a calculation"),
        ("x = 1 OR XPATH '//a'", 1, 10, "XPATH is not supported: a condition reads headers and fields"),
        (
            "NOT xquery '/a'",
            1,
            5,
            "XQUERY is not supported: a condition reads headers and fields, not the body",
        ),
        ("x = 0x8000000000000000", 1, 5, "at most 2^63-1"),
    ],
)
def test_a_refusal_says_where_and_why(condition: str, line: int, column: int, words: str) -> None:
    refused = refusal(condition)
    assert (refused.line, refused.column) == (line, column)
    assert refused.detail.startswith(f"line {line}, column {column}: ")
    assert words in refused.detail


def test_a_long_word_is_not_repeated_in_full() -> None:
    assert len(refusal("x " + "y" * 10_000).detail) < 200


@pytest.mark.parametrize(
    ("condition", "x"),
    [
        ("x = 010", 8),
        ("x = 0XfF", 255),
        ("x = 5l", 5),
        ("x = .5", 0.5),
        ("x = 5.E1", 50.0),
        ("x = 'it''s'", "it's"),
        ("x/**/=/* a * b **/5", 5),
        ("x = -- a comment\n 5", 5),
        ("x = 2 -- 3", 5),
        ('"x" = 5', 5),
        ("x = 5 aNd Not x = FALSE", None),
    ],
)
def test_words_are_cut_as_artemis_cuts_them(condition: str, x: Value) -> None:
    assert matches(condition, x=x) is (x is not None)


def test_names_with_hyphens() -> None:
    properties: dict[str, Value] = {"x-y": 1, 'a"b': 2, "x": 9, "y": 8}
    assert made('"x-y" = 1 AND "a""b" = 2 AND x-y = 1').matches(properties)
    assert made("hyphenated_props:x-y = 1").matches(properties)
    assert refusal('hyphenated_props:"x" = 1').column == 18


# -------------------------------------------------------------- comparisons and absent values


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("i = 5.0", True),
        ("i = '5'", False),
        ("i <> '5'", True),
        ("t <> 5", True),
        ("b = TRUE", True),
        ("b", True),
        ("t", False),
        ("bytes = 5 OR bytes <> bytes", False),
        ("bytes = bytes", True),
        ("bytes = other", False),
        ("t < u", True),
        ("byte = 5 AND NOT (5 = byte)", True),
        ("short = 5 AND NOT (i = short)", True),
        ("f = i AND f = 5.0", True),
        ("char = char AND NOT (char = '5')", True),
        ("nan = nan AND nan > 1 AND nan = 0.0 / 0.0 + 1", True),
        ("i BETWEEN 5 AND 5", True),
        ("i NOT BETWEEN 5 AND 6", False),
        ("NOT i = 5", False),
        ("NOT (i = 5)", False),
        ("(i = 5) = TRUE", True),
        ("minus < 0", True),
    ],
)
def test_comparisons(condition: str, result: bool) -> None:
    properties: dict[str, Value] = {
        "i": 5,
        "t": "abc",
        "u": "b",
        "b": True,
        "bytes": b"",
        "other": b"",
        "byte": Byte(5),
        "short": Short(5),
        "f": Float(5.0),
        "char": Char("5"),
        "nan": float("nan"),
        "minus": -0.0,
    }
    assert made(condition).matches(properties) is result


def test_texts_are_ordered_by_utf_16_units_as_in_java() -> None:
    assert matches("x < y", x="😀", y="\uffff")
    assert matches("x < y", x="a", y="é")


@pytest.mark.parametrize("properties", [{}, {"x": None}])
@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("x = 5", False),
        ("x <> 5", False),
        ("5 = x", False),
        ("5 <> x", True),
        ("NOT (5 = x)", True),
        ("NOT (x = 5)", False),
        ("x = y", True),
        ("x <> y", False),
        ("x IS NULL", True),
        ("x IS NOT NULL", False),
        ("(x = 5) IS NULL", True),
        ("x IN ('a')", False),
        ("x NOT IN ('a')", False),
        ("x NOT LIKE 'a'", False),
        ("x + 1 = 2 OR TRUE", True),
        ("x OR NOT x", False),
        ("NULL IS NULL", True),
    ],
)
def test_what_is_absent_is_unknown(condition: str, result: bool, properties: dict[str, Value]) -> None:
    assert made(condition).matches(properties) is result


# -------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    "condition",
    [
        "2 + 3 * 4 - 1 = 13",
        "10 - 3 - 2 = 5",
        "5 / 2 = 2.5",
        "-7 % 3 = -1",
        "2147483647 + 1 = -2147483648",
        "2147483648 + 1 = 2147483649",
        "9223372036854775807 + 1 = -9223372036854775808",
        "65536 * 65536 = 0",
        "1 / 0 > 9223372036854775807",
        "-1 / 0 < 0",
        "0 / 0 = 5 % 0",
        "-(0 - 2147483647 - 1) = -2147483648",
        "'a' + 1 + 2.0 = 'a12.0'",
        "'a' + 1e10 = 'a1.0E10'",
        "'a' + 0.0001 = 'a1.0E-4'",
        "'a' + 1234567.0 = 'a1234567.0'",
        "'a' + TRUE = 'atrue'",
        "'a' + 1 / 0 = 'aInfinity'",
        "'a' + 99999999999999999999 = 'a99999999999999999999'",
        "- - - 5 = -5",
        "long + 1 = 6 AND long * 2147483647 = 10737418235",
        "int * 2147483647 = 2147483643",
        "'a' + float = 'a0.1' AND 'a' + char = 'ac'",
        "-float < 0 AND byte + 1 = 6",
        "18446744073709551617 = 1",
        "-9223372036854775808 < 0",
        "NOT (9223372036854775808 > 5)",
    ],
)
def test_arithmetic_is_java_s(condition: str) -> None:
    properties: dict[str, Value] = {
        "long": Long(5),
        "int": 5,
        "float": Float(0.10000000149011612),
        "char": Char("c"),
        "byte": Byte(5),
    }
    assert made(condition).matches(properties)


@pytest.mark.parametrize(
    "condition", ["x - 1 = 4", "NOT (x - 1 = 4)", "x * 2 > 1 OR TRUE", "-y = 5", "z < 5"]
)
def test_what_cannot_be_evaluated_does_not_match_and_is_counted(condition: str) -> None:
    found = made(condition)
    properties: dict[str, Value] = {"x": "abc", "y": Byte(5), "z": b"5"}
    assert [found.matches(properties), found.matches(properties), found.raised] == [False, False, 2]
    assert [found.matches({"x": 6, "y": 5, "z": 4}), found.raised][1] == 2


def test_an_and_ends_at_what_is_unknown_unless_a_not_is_before_it() -> None:
    assert matches("(absent AND x - 1 = 4) OR TRUE", x="abc")
    assert not matches("NOT NOT (absent AND x - 1 = 4) OR TRUE", x="abc")


# -------------------------------------------------------------- LIKE and IN


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("'a%'", "a ab abc", "b ba"),
        ("'%c'", "c abc", "cb"),
        ("'a_c'", "abc a%c a.c", "ac abbc"),
        ("'%b%'", "b abc", "ac"),
        ("'a%b%c'", "abc abbc aXbXc", "acb ab"),
        ("'%a%_b'", "aXb XaXXb", "ab b"),
        ("'a.c'", "a.c", "abc"),
        ("'a!%b' ESCAPE '!'", "a%b", "aXb a!%b"),
        ("'a!xb' ESCAPE '!'", "a!xb", "axb"),
        ("'!!' ESCAPE '!'", "!", "!!"),
        ("'a%b' ESCAPE '%'", "ab aXb", "a"),
        ("'_'", "é 😀", "ab"),
        ("'→→' ESCAPE '→'", "!92", "→"),
    ],
)
def test_like(pattern: str, taken: str, left: str) -> None:
    assert [
        text for text in [*taken.split(), *left.split()] if matches(f"x LIKE {pattern}", x=text)
    ] == taken.split()
    assert [text for text in taken.split() if matches(f"x NOT LIKE {pattern}", x=text)] == []


def test_like_takes_nothing_but_texts() -> None:
    assert not matches("x LIKE '%'", x=5)
    assert matches("x NOT LIKE '%'", x=5)
    assert matches("x LIKE '%'", x="a\nb")


def test_like_does_not_go_back_into_what_it_has_passed() -> None:
    condition = made("x LIKE '%" + "a%" * 200 + "b'")
    assert not condition.matches({"x": "a" * 20_000})
    assert condition.matches({"x": "a" * 20_000 + "b"})


def test_in() -> None:
    assert matches("x IN ('a', 'b')", x="b")
    assert not matches("x IN ('5')", x=5)
    assert not matches("x NOT IN ('5')", x=5)
    assert matches("x NOT IN ('5')", x="6")


# -------------------------------------------------------------- prefixes and fields


@pytest.mark.parametrize(
    ("condition", "x", "result"),
    [
        ("x = 5", "5", True),
        ("x = 5", "5.0", False),
        ("x = 5.0", " 5.0d ", True),
        ("5000000000 = x", "5000000000", True),
        ("x = 5", "5000000000", False),
        ("x = TRUE", "tRuE", True),
        ("x - 1 = 4", "5", True),
        ("x * 1.0 = 5", "5", True),
        ("x / 2 = 2.75", "5.5", True),
        ("x > 1e3", "0x1p20", True),
        ("x > 0", "NaN", False),
        ("x > 0.0", "NaN", True),
        ("x = 5", "five", False),
        ("x = 5", "0" * 5_000 + "5", True),
        ("x = 5", "1" * 5_000, False),
        ("x IN ('5')", 5, False),
    ],
)
def test_texts_that_are_converted(condition: str, x: Value, result: bool) -> None:
    assert matches("convert_string_expressions:" + condition, x=x) is result
    assert not matches("convert_string_expressions:no_convert_string_expressions:" + condition, x=x)


def test_the_fields_of_a_message() -> None:
    system = System(7, False, 17, 18, 19, "ID:u", "orders", "g")
    for condition in (
        "AMQPriority = 7",
        "AMQDurable = 'NON_DURABLE'",
        "AMQTimestamp = 17",
        "AMQExpiration > 17",
        "AMQSize = 19",
        "AMQUserID = 'ID:u'",
        "AMQAddress = 'orders'",
        "AMQGroupID = 'g'",
        "_AMQ_GROUP_ID = 'g'",
        "AMQFoo = 1",
        "AMQTimestamp * 2147483647 > 17",
    ):
        assert made(condition).matches({"AMQFoo": 1, "AMQPriority": 1}, system), condition
    assert matches("AMQDurable = 'DURABLE' AND AMQPriority = 4 AND AMQUserID = 'mine'", AMQUserID="mine")
    assert made('AMQPriority = 4 AND "a" = 1 AND x > y').names == {"AMQPriority", "a", "x", "y"}


def test_explain_shows_brackets_and_types() -> None:
    explained = made("region = 'eu' AND amount > 1.5 OR NOT x OR -y - 1 * 2 <> 3000000000").explain()
    assert explained == (
        '((("region" = \'eu\' /* text */) AND ("amount" > 1.5 /* double */)) OR (NOT "x") OR '
        '(NOT (((- "y") - (1 /* int */ * 2 /* int */)) = 3000000000 /* long */)))'
    )
    assert made("convert_string_expressions:hyphenated_props:a-b = 5L").explain() == (
        'convert_string_expressions:("a-b" = 5L /* int */)'
    )
