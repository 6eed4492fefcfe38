from __future__ import annotations

import msgspec
import pytest

from bridge.errors import BridgeError
from bridge.http.answers import answer
from bridge.http.problems import problem


class Refused(BridgeError):
    code, status = "SETTINGS_INVALID", 409


@pytest.mark.parametrize("msgpack", [False, True])
def test_a_file_name_that_is_not_utf8_is_escaped_in_an_answer(msgpack: bool) -> None:
    decode = msgspec.msgpack.decode if msgpack else msgspec.json.decode
    found = decode(answer({"files": ["a\udcffb", "é"], "c\udcff": 1, "d": (2,)}, msgpack=msgpack).body)
    assert found == {"files": ["a\\udcffb", "é"], "c\\udcff": 1, "d": [2]}


def test_a_problem_that_names_such_a_file_is_that_problem() -> None:
    refused = problem(Refused("a\udcffb.toml: node.name: required"))
    assert refused.status == 409
    assert msgspec.json.decode(refused.body)["detail"] == "a\\udcffb.toml: node.name: required"
