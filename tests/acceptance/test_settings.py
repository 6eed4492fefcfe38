"""The contract's "Settings", through `core-bridge validate` and `core-bridge run`."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.harness.api import HOST, Api
from tests.harness.commands import Ended, command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode

HUB = '[connectors.hub]\nurl = "ws://hub:61616"\n'
BRIDGE = '[[bridges]]\nname = "orders-to-hub"\nqueue-name = "orders"\nstatic-connectors = ["hub"]\n'

Validate = Callable[..., Ended]


@pytest.fixture
def validate(tmp_path: Path) -> Validate:
    """Runs `core-bridge validate` on a file of this text, in its directory."""

    def run(text: str, **variables: str) -> Ended:
        (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
        return command("validate", cwd=tmp_path, variables=variables)

    return run


def test_a_valid_file_is_ok_and_each_bridge_is_a_line(validate: Validate) -> None:
    more = '[[bridges]]\nname = "copy"\nqueue-name = ["a", "b"]\nforwarding-address = "c.{address}"\n'
    more += 'static-connectors = ["journal"]\nuse-duplicate-detection = false\n'
    ended = validate(HUB + BRIDGE + more)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "settings.toml: ok",
        "orders-to-hub: journal:orders -> hub: exactly-once",
        "copy: journal:a,b -> journal: at-least-once",
    ]


def test_an_empty_file_is_valid_and_opens_nothing(make_node: MakeNode) -> None:
    """Absent tables: defaults, except [acceptor] and [operations], which are not opened."""
    node = make_node()
    node.write()
    text = node.file.read_text()
    node.file.write_text(text[: text.index("[acceptor]")])
    ended = command("validate", "--settings", str(node.file))
    assert (ended.code, ended.out) == (0, f"{node.file}: ok\n")
    node.write = lambda: node.file  # type: ignore[method-assign]
    node.spawn()
    event = node.event("listening")
    assert (event["acceptor"], event["operations"]) == (None, None)
    assert node.stop() == 0


def test_the_shipped_file_and_the_reference_are_valid() -> None:
    root = Path(__file__).parents[2]
    assert (
        command(
            "validate",
            "--settings",
            str(root / "settings.toml"),
            variables={"HUB_TOKEN": "t", "HOSTNAME": "h"},
        ).code
        == 0
    )


def test_every_problem_is_told_at_once_in_its_own_line(validate: Validate) -> None:
    """O5."""
    wrong = BRIDGE.replace('"hub"', '"hbu"') + 'retry-interval = "2"\nconnection-ttl = 1000\n'
    ended = validate(HUB + wrong + '[duplicate-detection]\nid-cache-sise = 5\n[node]\nlog-level = "loud"\n')
    assert (ended.code, ended.out) == (2, "")
    lines = ended.err.splitlines()
    assert lines[-1] == "5 problems"
    assert len(lines) == 6
    form = re.compile(r"settings\.toml: (\S+)( \(orders-to-hub\))?: .+; found .+")
    keys = {match[1] for line in lines[:-1] if (match := form.fullmatch(line))}
    assert keys == {
        "bridges[0].retry-interval",
        "bridges[0].connection-ttl",
        "bridges[0].static-connectors[0]",
        "duplicate-detection.id-cache-sise",
        "node.log-level",
    }
    assert any(line.endswith("; did you mean id-cache-size?") for line in lines)
    assert any(line.endswith("; did you mean hub?") for line in lines)
    assert sum("(orders-to-hub)" in line for line in lines) == 3


#: Each wrong file, and the key path and part of the rule that its one line must have.
WRONG = {
    "unknown key": ("[node]\nnmae = 'x'\n", "node.nmae", "did you mean name?"),
    "wrong type": ("[acceptor]\nurl = 17\n", "acceptor.url", "found 17"),
    "number as text": ('[acceptor]\nmax-requests = "512"\n', "acceptor.max-requests", 'found "512"'),
    "boolean as text": ('[duplicate-detection]\npersist-id-cache = "true"\n',
        "persist-id-cache", 'found "true"'),
    "out of range": ("[acceptor]\nmax-requests = 0\n", "acceptor.max-requests", "found 0"),
    "duration without a unit": ('[node]\nshutdown-timeout = "20"\n', "node.shutdown-timeout", 'found "20"'),
    "size with a wrong unit": ('[acceptor]\nmax-message-size = "16MB2"\n',
        "max-message-size", 'found "16MB2"'),
    "dangling connector": (BRIDGE, "bridges[0].static-connectors[0] (orders-to-hub)", 'found "hub"'),
    "equal names": (HUB + BRIDGE + BRIDGE, "bridges[1].name", "unique"),
    "short connection-ttl": (HUB + BRIDGE + "check-period = 60000\n", "connection-ttl", "60000"),
    "kafka under ws": (HUB + "[connectors.hub.kafka]\n", "connectors.hub.kafka", "kafka://"),
    "open listener": ('[acceptor]\nurl = "ws://0.0.0.0:1"\ninsecure = true\n',
        "acceptor.tokens", "off loopback"),
    "open without TLS": ('[acceptor]\nurl = "ws://0.0.0.0:1"\ntokens = ["t"]\n', "acceptor.url", "insecure"),
    "open operations": ('[operations]\nurl = "http://0.0.0.0:1"\n', "operations.tokens", "off loopback"),
    "unset variable": ('[node]\nname = "${NOWHERE}"\n', "node.name", "NOWHERE"),
    "missing required key": ('[[bridges]]\nqueue-name = "a"\nstatic-connectors = ["journal"]\n',
        "bridges[0].name", "required"),
    "TOML error": ("[node\n", "line 1, column", ""),
    "unquoted name with dots": ("[addresses.orders.eu]\n", 'addresses', '"orders.eu"'),
    "unquoted #": ("[address-settings.#]\n", "line 1", '"#"'),
    "backslash in double quotes": (HUB + BRIDGE.replace('"orders"', r'"/orders\..*/"'),
        "line 5", "single quotes"),
    "key without effect": (HUB + BRIDGE + "fail-back = true\n",
        "bridges[0].fail-back (orders-to-hub)", "needs several static-connectors"),
    "transformer that is not there": (HUB + BRIDGE + 'transformer = "nowhere.at.all:seen"\n',
        "bridges[0].transformer (orders-to-hub)", "cannot be imported here: ModuleNotFoundError"),
    "transformer that cannot be made": (
        HUB + BRIDGE + 'transformer = "tests.harness.transformers:NeverMade"\n',
        "bridges[0].transformer (orders-to-hub)", "cannot be made with its properties: ValueError"),
    "no condition": (HUB + BRIDGE + 'filter = "amount => 10"\n',
        "bridges[0].filter (orders-to-hub)", "line 1, column 9"),
    "Kafka option": ('[connectors.us]\nurl = "kafka://b:9092"\n[connectors.us.kafka]\nlinger-m = 5\n',
        "connectors.us.kafka.linger-m", "did you mean linger-ms?"),
}  # fmt: skip


@pytest.mark.parametrize("scenario", WRONG)
def test_wrong_files_are_answered_by_their_place_and_rule(validate: Validate, scenario: str) -> None:
    """O5, O8."""
    text, key, rule = WRONG[scenario]
    ended = validate(text)
    assert (ended.code, ended.out) == (2, ""), ended
    *lines, number = ended.err.splitlines()
    assert number == "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    found = [line for line in lines if key in line and rule in line]
    assert found, ended.err
    assert all(line.startswith("settings.toml: ") for line in lines)
    assert len(lines) <= 2


def test_secrets_are_never_shown(validate: Validate) -> None:
    ended = validate(
        '[acceptor]\ntokens = ["s3cret", 5, ""]\n[connectors.hub]\nurl = "ws://a:1"\ntoken = ["s3cret"]\n'
    )
    assert ended.code == 2
    assert "***" in ended.err
    assert "s3cret" not in ended.err


def test_a_key_of_a_later_feature_may_be_written_with_its_default(validate: Validate) -> None:
    ended = validate(HUB + BRIDGE + 'filter = ""\nconcurrency = 1\nmax-hops = 8\n[node]\nworkers = 1\n')
    assert (ended.code, ended.err) == (0, "")


def test_run_answers_a_wrong_file_before_anything_is_opened(make_node: MakeNode) -> None:
    node = make_node(rest=BRIDGE)
    node.write()
    with closing(socket.create_server((HOST, node.port))):
        ended = node.run_to_its_end()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("1 problem\n")
    assert not node.data.exists()
    missing = node.run_to_its_end(settings=node.directory / "nowhere.toml")
    assert (missing.code, missing.out) == (2, "")


def test_durations_and_sizes_in_every_unit(validate: Validate) -> None:
    durations = ["5000", '"2000ms"', '"2s"', '"1m"', '"1h"', '"1d"']
    sizes = ["1000000", '"10MiB"', '"10KiB"', '"1GiB"', '"5kB"', '"5MB"', '"1GB"', '"99999B"']
    text = HUB + "retry-interval-multiplier = 2\n".join(
        BRIDGE.replace("orders-to-hub", f"b{number}") + f"pending-ack-timeout = {value}\n"
        for number, value in enumerate(durations)
    )
    text += "".join(
        f"[address-settings.a{number}]\nmax-size-bytes = {value}\n" for number, value in enumerate(sizes)
    )
    ended = validate(f"{text}[delivery-log]\nretention-time = -1\n")
    assert (ended.code, ended.err) == (0, ""), "integers pass for floats"
    assert len(ended.out.splitlines()) == 1 + len(durations)


def test_values_are_filled_in_after_parsing_once_and_relative_to_the_file(make_node: MakeNode) -> None:
    tokens = {
        "${TOKEN}": 'quote"${NOT_AGAIN}',
        "${UNSET:-text}": "text",
        "$${literal}": "${literal}",
        "${file:token.txt}": "from-file",
        "a-${TOKEN_2}-${TOKEN_2}": "a-b-b",
    }
    variables = {"TOKEN": tokens["${TOKEN}"], "TOKEN_2": "b"}
    node = make_node(acceptor=f"tokens = {json.dumps(list(tokens))}", variables=variables)
    (node.directory / "token.txt").write_text("from-file\n")
    elsewhere = node.directory / "elsewhere"
    elsewhere.mkdir()
    node.start(cwd=elsewhere)
    assert node.data.is_dir(), "relative to the file"
    for token in tokens.values():
        assert Api(node.port, token).send("orders", b"x").status == 200, token
    for written in tokens.keys() - {"$${literal}"}:
        Api(node.port, written).send("orders", b"x").is_problem(401, "UNAUTHENTICATED")


def test_the_file_is_named_by_option_variable_or_default(tmp_path: Path) -> None:
    for name in ("settings.toml", "one.toml", "two.toml"):
        (tmp_path / name).write_text("")
    assert command("validate", cwd=tmp_path).out == "settings.toml: ok\n"
    assert (
        command("validate", cwd=tmp_path, variables={"CORE_BRIDGE_SETTINGS": "one.toml"}).out
        == "one.toml: ok\n"
    )
    both = command(
        "validate", "--settings", "two.toml", cwd=tmp_path, variables={"CORE_BRIDGE_SETTINGS": "one.toml"}
    )
    assert both.out == "two.toml: ok\n"


def test_address_settings_hold_key_by_key_for_the_most_exact_pattern(make_node: MakeNode) -> None:
    node = make_node(
        rest='[address-settings."#"]\nmax-size-bytes = "1MiB"\nid-cache-size = 5\n'
        '[address-settings."orders.*"]\nid-cache-size = 6\n'
        '[address-settings."orders.eu"]\nmax-size-bytes = "2MiB"\n'
    ).start()
    found = {}
    for address in ("orders.eu", "orders.us", "orders.us.west"):
        node.api.send(address, b"x")
        shown = node.api.get(f"/v1/addresses/{address}").json
        found[address] = (shown["max-bytes"] // 2**20, shown["id-cache"]["capacity"])
    assert found == {"orders.eu": (2, 6), "orders.us": (1, 6), "orders.us.west": (1, 5)}
    eventually(lambda: node.ops.get("/ready").status == 200, "it is ready")
