"""`core-bridge filter` as a process: lines in, answers out, refusals, pipes and signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bridge.cli.filter_lines import LINE_BYTES_MOST, TYPES
from tests.harness.commands import command, environment
from tests.harness.eventually import PATIENCE_S

Process = subprocess.Popen[bytes]

MESSAGES = b"""\
{"properties": {"region": "eu", "amount": 12}}

{"properties": {"region": "eu", "amount": 12}, "types": {"amount": "byte"}, "system": {"priority": 9}}
{"properties": {"region": "us", "amount": 12}}
{}
"""


@pytest.fixture
def asking() -> Iterator[Process]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge", "filter", "x > 5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    yield process
    process.kill()
    process.communicate()


def ask(process: Process, line: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_each_message_is_answered() -> None:
    ended = command("filter", "region = 'eu' AND amount > 10", data=MESSAGES)
    assert (ended.code, ended.out, ended.err) == (0, "true\ntrue\nfalse\nfalse\n", "")


def test_every_type_can_be_given() -> None:
    line = {
        "properties": {
            "byte": 1,
            "short": 2,
            "int": 3,
            "long": 4,
            "float": 0.1,
            "double": "NaN",
            "char": "c",
            "bytes": "00ff",
            "header": "5",
            "none": None,
            "plain": 2**40,
        },
        "types": {name: name for name in TYPES},
        "system": {
            "priority": 1,
            "durable": False,
            "timestamp": 2,
            "expiration": 3,
            "size": 4,
            "userID": "u",
            "groupID": "g",
            "address": "orders",
            "type": 3,
            "body": "<a/>",
        },
    }
    condition = (
        "byte + short + int + long = 10 AND float <> 0.1 AND double = double AND char <> 'c' AND "
        "bytes = bytes AND header = 5 AND none IS NULL AND plain = 1099511627776 AND AMQPriority = 1 AND "
        "AMQTimestamp = 2 AND AMQDurable = 'NON_DURABLE' AND AMQExpiration = 3 AND AMQSize = 4 AND "
        "AMQUserID = 'ID:u' AND AMQGroupID = 'g' AND AMQAddress = 'orders'"
    )
    assert command("filter", condition, data=json.dumps(line).encode()).out == "true\n"


def test_the_condition_is_explained() -> None:
    ended = command("filter", "--explain", "NOT x = 5 OR y")
    assert (ended.code, ended.out) == (0, '(((NOT "x") = 5 /* int */) OR "y")\n')


def test_an_empty_condition_takes_every_message() -> None:
    assert command("filter", " ", data=b"{}\n{}").out == "true\ntrue\n"
    assert command("filter", "", "--explain").out == "no filter: every message is taken\n"


def test_a_refused_condition_says_where() -> None:
    ended = command("filter", "x =\n= 5", data=MESSAGES)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "core-bridge: FILTER_REFUSED: line 2, column 1: expected a name, a text, a number or a condition; "
        "found =\n"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "must be JSON; found {"),
        (b"\xff", "must be JSON"),
        (b"[1]", "must be a JSON object; found [1]"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"properties": 5}', "properties: must be an object; found 5"),
        (b'{"properties": {"x": []}}', "properties.x: must be a text, true, false, null or a number "),
        (b'{"properties": {"x": 9223372036854775808}}', "properties.x: must be a text, true"),
        (b'{"properties": {"x": 200}, "types": {"x": "byte"}}', "x: must be a whole number of 8 bits"),
        (b'{"properties": {"x": true}, "types": {"x": "int"}}', "x: must be a whole number of 32 bits"),
        (b'{"properties": {"x": "a"}, "types": {"x": "float"}}', "x: must be a number or one of NaN"),
        (
            b'{"properties": {"x": "f"}, "types": {"x": "bytes"}}',
            'an even number of hexadecimal digits; found "f"',
        ),
        (b'{"properties": {"x": "ab"}, "types": {"x": "char"}}', 'x: must be one character; found "ab"'),
        (b'{"properties": {"x": 5}, "types": {"x": "header"}}', "properties.x: must be a text; found 5"),
        (b'{"properties": {"x": 5}, "types": {"x": "word"}}', "types.x: must be one of byte, short"),
        (b'{"types": {"x": "int"}}', "types.x: there is no property of this name"),
        (b'{"system": {"weight": 5}}', "system.weight: must be one of priority, durable"),
        (b'{"system": {"priority": "5"}}', "system.priority: must be a whole number within 64 bits; "),
        (b'{"system": {"durable": 1}}', "system.durable: must be true or false; found 1"),
        (b" " * (LINE_BYTES_MOST + 1), f"must have at most {LINE_BYTES_MOST} bytes"),
    ],
)
def test_a_bad_line_is_named_with_the_rule_and_the_value(line: bytes, words: str) -> None:
    ended = command("filter", "x = 5", data=b'{"properties": {"x": 5}}\n\n' + line + b"\n{}\n")
    assert (ended.code, ended.out) == (2, "true\n")
    assert ended.err.startswith("core-bridge: MALFORMED: line 3: ")
    assert words in ended.err
    assert ended.err.count("\n") == 1


def test_what_could_not_be_evaluated_is_counted() -> None:
    ended = command("filter", "x - 1 = 4", data=b'{"properties": {"x": "a"}}\n{"properties": {"x": 5}}\n')
    assert (ended.code, ended.out) == (0, "false\ntrue\n")
    assert ended.err.startswith("core-bridge: 1 of the messages that were not taken could not be evaluated")


def test_options_that_mean_nothing_are_refused() -> None:
    assert command("filter", "x", "--url", "http://127.0.0.1:1").code == 2
    assert command("filter").code == 2


def test_an_answer_comes_before_the_next_line(asking: Process) -> None:
    assert ask(asking, b'{"properties": {"x": 6}}') == b"true\n"
    assert ask(asking, b'{"properties": {"x": 5}}') == b"false\n"


def test_ctrl_c_ends_it_quietly(asking: Process) -> None:
    assert ask(asking, b"{}") == b"false\n"
    asking.send_signal(signal.SIGINT)
    assert asking.wait(PATIENCE_S) == 130
    assert asking.stderr is not None
    assert asking.stderr.read() == b""


def test_it_ends_with_the_reader_of_its_output(asking: Process) -> None:
    assert ask(asking, b"{}") == b"false\n"
    assert asking.stdin is not None
    assert asking.stdout is not None
    asking.stdout.close()
    asking.stdin.write(b"{}\n")
    asking.stdin.close()
    assert asking.wait(PATIENCE_S) == 141
    assert asking.stderr is not None
    assert asking.stderr.read() == b""
    asking.stdin = asking.stdout = None
