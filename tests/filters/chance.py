"""Random conditions and messages: most of the conditions mean something, some are broken on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

NAMES: Final = ("x", "y", "z", "s", "t", "u", '"x-y"', '"a.b"', "X", "$_1")
FIELDS: Final = (
    "AMQPriority", "AMQDurable", "AMQTimestamp", "AMQExpiration", "AMQUserID", "AMQAddress",
    "AMQGroupID", "_AMQ_GROUP_ID", "AMQFoo", "JMSPriority",
)  # fmt: skip
INTEGERS: Final = (
    "0", "1", "2", "5", "5L", "7l", "10", "127", "128", "010", "017", "0x10", "0XfF", "32768",
    "2147483647", "2147483648", "2147483647L", "4294967296", "16777217", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "9223372036854775809", "18446744073709551615",
    "18446744073709551617", "0x7fffffffffffffff", "0777777777777777777777", "99999999999999999999",
)  # fmt: skip
DOUBLES: Final = (
    "0.0", "1.0", "5.", ".5", "1.5", "5.0", "1e3", "1.5E-1", "0.1", "1E400", "1e-400", "16777217.0",
    "9007199254740993.0", "2.5e10", "123456789.125", "0.001", "1e7",
)  # fmt: skip
TEXTS: Final = (
    "", "a", "b", "ab", "abc", "A", "5", "5.0", "-5", "+5", "05", "0x5", "5d", " 5 ", "1e3", "NaN",
    "Infinity", "true", "TRUE", "false", "a%b", "a_b", "100%", "it''s", "é", "café", "😀", "￿", "a\nb",
    "\\", "a.c", "-- c", "/* */", "DURABLE", "ID:00112233-4455-1677-8899-aabbccddeeff", "g",
    "9223372036854775808", "127", "128",
)  # fmt: skip
PATTERNS: Final = (
    "%", "_", "a%", "%a", "%a%", "a_c", "_b%", "%5%", "a!%b", "a!_b", "!!", "!a", "!", "%_", "__", "",
    "a%b%c", ".*", "a.c", "é%", "_😀", "\\%", "%\n%", "tt%", "%t", "\t\ta", "\t\tg", "→→", "→_", "éé",
    "[ab]", "a|b", "$", "^a", "D%",
)  # fmt: skip
ESCAPES: Final = ("!", "\\", "%", "_", "t", "é", "→", "\t", "", "ab", "😀", "$")
PREFIXES: Final = (
    "convert_string_expressions:", "no_convert_string_expressions:", "hyphenated_props:",
    "no_hyphenated_props:",
)  # fmt: skip
BLANKS: Final = (" ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", " /* c */ ", "/***/", " -- c\n", " -- c\r")
NOISE: Final = (
    "(", ")", ",", "=", "<>", "<", "-", "--", "/*", "*/", "'", '"', ".", "1", "x", "NOT", "AND", "IN",
    "!", "0x", "08", "1e", "é", "\u0000", "null", "ESCAPE", "#", "IS", ";",
)  # fmt: skip
WORDS: Final = (
    "AND", "OR", "NOT", "IN", "LIKE", "'a'", "'%'", "BETWEEN", "IS", "NULL", "TRUE",
    "=", "<", ">", "<=", ">=", "+", "*", "/", "%", "\n", "ESCAPE '!'",
)  # fmt: skip
CHARS: Final = "()'\"=<>+-*/% ,.x1eEL0\n\r\t_$#é;:!"


class Conditions:
    """Conditions from chance, as lists of words."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def condition(self) -> str:
        rng = self._rng
        words = self._test(rng.choice((1, 2, 2, 3, 4)))
        if rng.random() < 0.08:
            place = rng.randrange(len(words) + 1)
            words[place : place + rng.randrange(2)] = [rng.choice(NOISE)]
        text = self._joined(words)
        while rng.random() < 0.2:
            text = rng.choice(PREFIXES) + text
        return text

    def broken(self) -> str:
        """A condition in which some characters were dropped, doubled, put in or exchanged, or mere words."""
        rng = self._rng
        if rng.random() < 0.3:
            words = (*NAMES, *NOISE, *INTEGERS, *DOUBLES, *WORDS)
            return rng.choice(("", " ")).join(rng.choice(words) for _ in range(rng.randrange(1, 8)))
        chars = list(self.condition())
        for _ in range(rng.choice((1, 1, 2, 3))):
            place, other = rng.randrange(len(chars)), rng.randrange(len(chars))
            match rng.randrange(4):
                case 0 if len(chars) > 1:
                    del chars[place]
                case 1:
                    chars.insert(place, chars[place])
                case 2:
                    chars.insert(place, rng.choice(CHARS))
                case _:
                    chars[place], chars[other] = chars[other], chars[place]
        return "".join(chars)

    def _joined(self, words: list[str]) -> str:
        rng = self._rng
        tight = rng.random() < 0.1
        blank = rng.choice(BLANKS) if rng.random() < 0.3 else " "
        return ("" if tight else blank).join(self._cased(word) for word in words)

    def _cased(self, word: str) -> str:
        return word.lower() if word.isalpha() and word.isupper() and self._rng.random() < 0.1 else word

    def _any(self, *makers: Callable[[], list[str]]) -> list[str]:
        return self._rng.choice(makers)()

    def _test(self, depth: int) -> list[str]:
        if depth == 0:
            return self._leaf()

        def deeper() -> list[str]:
            return self._test(depth - 1)

        return self._any(
            self._leaf,
            lambda: ["NOT", *deeper()],
            lambda: ["NOT", "(", *deeper(), ")"],
            lambda: ["(", *deeper(), ")"],
            lambda: [*deeper(), "AND", *deeper()],
            lambda: [*deeper(), "OR", *deeper()],
            lambda: ["(", *deeper(), ")", "AND", "(", *deeper(), ")"],
            lambda: ["(", *deeper(), ")", "OR", "(", *deeper(), ")"],
            lambda: [
                "(",
                *deeper(),
                ")",
                self._rng.choice(("=", "<>")),
                self._rng.choice(("TRUE", "FALSE", "x")),
            ],
            lambda: ["(", *deeper(), ")", "IS", *self._rng.choice((["NULL"], ["NOT", "NULL"]))],
        )

    def _leaf(self) -> list[str]:
        rng = self._rng

        def operand() -> list[str]:
            return self._operand(rng.choice((0, 0, 0, 1, 2)))

        negated = ["NOT"] if rng.random() < 0.3 else []
        return self._any(
            lambda: [*operand(), rng.choice(("=", "<>")), *operand()],
            lambda: [*operand(), rng.choice(("=", "<>")), *operand()],
            lambda: [*operand(), rng.choice(("<", "<=", ">", ">=")), *operand()],
            lambda: [*operand(), rng.choice(("<", "<=", ">", ">=")), *operand()],
            lambda: [*operand(), *negated, "BETWEEN", *operand(), "AND", *operand()],
            lambda: [*operand(), "IS", *negated, "NULL"],
            lambda: [
                *self._name_or(operand),
                *negated,
                "LIKE",
                quoted(rng.choice(PATTERNS)),
                *self._escape(),
            ],
            lambda: [*self._name_or(operand), *negated, "IN", "(", *self._texts(), ")"],
            lambda: [*self._name()],
            lambda: [rng.choice(("TRUE", "FALSE", "NULL"))],
        )

    def _escape(self) -> list[str]:
        return ["ESCAPE", quoted(self._rng.choice(ESCAPES))] if self._rng.random() < 0.5 else []

    def _texts(self) -> list[str]:
        words = [quoted(self._rng.choice(TEXTS))]
        for _ in range(self._rng.choice((0, 1, 2, 6))):
            words += [",", quoted(self._rng.choice(TEXTS))]
        return words

    def _name_or(self, operand: Callable[[], list[str]]) -> list[str]:
        return self._name() if self._rng.random() < 0.8 else operand()

    def _name(self) -> list[str]:
        rng = self._rng
        return [rng.choice(FIELDS) if rng.random() < 0.1 else rng.choice(NAMES)]

    def _operand(self, depth: int) -> list[str]:
        rng = self._rng
        if depth == 0:
            return self._any(self._name, self._name, self._name, self._literal)

        def deeper() -> list[str]:
            return self._operand(depth - 1)

        return self._any(
            lambda: [*deeper(), rng.choice("+-*/%"), *deeper()],
            lambda: [*deeper(), rng.choice("+-*/%"), *deeper()],
            lambda: ["-", *deeper()],
            lambda: ["+", *deeper()],
            lambda: ["(", *deeper(), rng.choice("+-*/%"), *deeper(), ")"],
            lambda: ["(", *deeper(), ")"],
        )

    def _literal(self) -> list[str]:
        rng = self._rng
        return self._any(
            lambda: [rng.choice(INTEGERS)],
            lambda: [rng.choice(INTEGERS)],
            lambda: [rng.choice(DOUBLES)],
            lambda: [quoted(rng.choice(TEXTS))],
            lambda: [rng.choice(("TRUE", "FALSE", "NULL"))] if rng.random() < 0.3 else [rng.choice(INTEGERS)],
        )


def quoted(text: str) -> str:
    return f"'{text}'"


def _number(rng: random.Random, bits: int) -> int:
    half = 2 ** (bits - 1)
    near = rng.choice(
        (0, 1, 5, 5, 10, -1, -5, 127, 128, 2**24 + 1, 2**31 - 1, 2**31, 2**53 + 1, half - 1, -half)
    )
    return near if -half <= near < half else rng.randrange(-half, half)


#: By type, what makes a value as a JSON line has it.
_VALUES: Final[dict[str, Callable[[random.Random], Any]]] = {
    "byte": lambda rng: _number(rng, 8),
    "short": lambda rng: _number(rng, 16),
    "int": lambda rng: _number(rng, 32),
    "long": lambda rng: _number(rng, 64),
    "float": lambda rng: rng.choice((0, -0.0, 1, 1.5, 5, 5.0, 16777216, "NaN", "Infinity", 0.1, 1e10, 3e-5)),
    "double": lambda rng: rng.choice(
        (
            0.0,
            -0.0,
            1.0,
            1.5,
            5.0,
            9007199254740992.0,
            "NaN",
            "-Infinity",
            0.1,
            1e10,
            123.456,
            rng.uniform(-10, 10),
        )
    ),
    "bytes": lambda rng: rng.choice(("", "35", "616263", "ff")),
    "char": lambda rng: rng.choice(("5", "a", "é")),
    "bool": lambda rng: rng.random() < 0.5,
    "text": lambda rng: rng.choice(TEXTS).replace("''", "'"),
    "null": lambda rng: None,
}
_KINDS: Final = (*_VALUES, "int", "int", "double", "text", "text", "text", "bool")
_UNTYPED: Final = {"bool", "text", "null"}


def message(rng: random.Random) -> dict[str, Any]:
    """A message as a JSON line has it."""
    properties: dict[str, Any] = {}
    types = {}
    for name in (*NAMES, "AMQFoo", "JMSPriority", "AMQUserID", "x-y", "a.b"):
        if rng.random() < 0.7 and not name.startswith('"'):
            kind = rng.choice(_KINDS)
            properties[name] = _VALUES[kind](rng)
            if kind not in _UNTYPED:
                types[name] = kind
    system: dict[str, Any] = {}
    if rng.random() < 0.2:
        system = {
            "priority": rng.randrange(10), "durable": rng.random() < 0.5, "expiration": rng.choice((0, 5)),
            "timestamp": rng.choice((0, 5, 1_700_000_000_001)), "address": rng.choice(TEXTS[1:5]),
        }  # fmt: skip
        if rng.random() < 0.5:
            system["groupID"] = "g"
            system["userID"] = "00112233-4455-1677-8899-aabbccddeeff"
    return {"properties": properties, "types": types, "system": system}
