"""What `validate` says of Kafka settings (contract, Settings): every problem at once, a line each, exit 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.kafka.conftest import Validate
from tests.harness.commands import command

US = '[connectors.us]\nurl = "kafka://broker-1:9092,broker-2:9092"\n'
EU = '[connectors.eu]\nurl = "kafka://eu:9092"\n'
HUB = '[connectors.hub]\nurl = "ws://hub:61616"\n'
BRIDGE = (
    '[[bridges]]\nname = "one"\nsource-connector = "eu"\nqueue-name = "orders"\nstatic-connectors = ["us"]\n'
)


def problems(validate: Validate, text: str, **variables: str) -> list[str]:
    """The problems, after a look at the form."""
    ended = validate(text, **variables)
    assert (ended.code, ended.out) == (2, ""), ended
    *found, last = ended.err.splitlines()
    assert last == f"{len(found)} problem{'s' if len(found) > 1 else ''}"
    assert all(re.match(r"settings\.toml: \S.*: .+; found .+", line) for line in found), found
    return [line.removeprefix("settings.toml: ") for line in found]


def test_each_pair_of_ends_is_a_line(validate: Validate) -> None:
    rest = ""
    for name, source, target, more in [
        ("k2k", "eu", "us", ""),
        ("k2n", "eu", "hub", ""),
        ("k2j", "eu", "journal", ""),
        ("j2k", "journal", "us", ""),
        ("least", "eu", "us", 'use-duplicate-detection = false\nforwarding-address = "x"\n'),
        ("many", "eu", "us", "queue-name = ['a', '/b\\..*/', '!b.c']\n"),
    ]:
        queue = "" if "queue-name" in more else 'queue-name = "orders"\n'
        rest += f'[[bridges]]\nname = "{name}"\nsource-connector = "{source}"\n{queue}'
        rest += f'static-connectors = ["{target}"]\n{more}'
    ended = validate("[node]\nworkers = 2\n" + US + EU + HUB + rest)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "settings.toml: ok",
        "k2k: eu:orders -> us: exactly-once",
        "k2n: eu:orders -> hub: exactly-once",
        "k2j: eu:orders -> journal: exactly-once",
        "j2k: journal:orders -> us: exactly-once",
        "least: eu:orders -> us: at-least-once",
        "many: eu:a,/b\\..*/,!b.c -> us: exactly-once",
    ]


def test_the_kafka_part_of_the_reference_is_accepted(validate: Validate, tmp_path: Path) -> None:
    """Every key of `[connectors.us.kafka]` and of a Kafka bridge, with the reference's values."""
    kafka = (
        'security-protocol = "PLAINTEXT"\nssl-cafile = ""\nssl-certfile = ""\nssl-keyfile = ""\n'
        'ssl-password = ""\n'
        'ssl-check-hostname = true\nsasl-mechanism = "PLAIN"\nsasl-plain-username = ""\n'
        'sasl-plain-password = ""\n'
        'sasl-oauth-token-file = ""\nclient-id = "bridge"\nlinger-ms = 5\ncompression-type = "zstd"\n'
        "fetch-max-wait-ms = 10\nmax-poll-records = 5\nmetadata-max-age-ms = 1000\n"
    )
    bridge = (
        'forwarding-address = "us.{address}"\nuse-duplicate-detection = true\ncheck-producer-ids = "auto"\n'
        'concurrency = 4\nmax-delivery-attempts = 10\ndead-letter-address = "dead-letters"\n'
        'start-position = "earliest"\ngap-policy = "stop"\npreserve-partitions = true\ncreate-topics = true\n'
        'add-partitions = false\ntopic-replication-factor = -1\njournal-topic = ""\n'
        'journal-replication-factor = -1\ngroup-id = ""\nmax-hops = 8\nprevious-name = "zero"\n'
    )
    text = US + 'identity = ""\n[connectors.us.kafka]\n' + kafka + EU + BRIDGE + bridge
    ended = validate(text)
    assert (ended.code, ended.err) == (0, ""), ended
    assert "one: eu:orders -> us: exactly-once" in ended.out


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap-servers", "ssl-context", "sasl-oauth-token-provider", "group-id", "isolation-level",
        "enable-auto-commit", "auto-offset-reset", "transactional-id", "enable-idempotence", "acks",
        "partitioner",
        "key-serializer", "value-serializer", "key-deserializer", "value-deserializer",
    ],
)  # fmt: skip
def test_what_the_bridge_sets_is_refused_by_name(validate: Validate, key: str) -> None:
    (line,) = problems(validate, US + f'[connectors.us.kafka]\n{key} = "x"\n')
    assert line.startswith(f"connectors.us.kafka.{key}: ")
    assert line.endswith('; found "x"')
    assert "unknown key" not in line


def test_every_wrong_kafka_setting_at_once(validate: Validate) -> None:
    text = (
        US
        + '[connectors.us.kafka]\nsecurity-protocol = "SSLL"\nsasl-mechanism = "GSSAPI"\nfetch-max-byts = 1\n'
        + 'linger-ms = "5"\ncompression-type = "lzma"\n'
        + HUB
        + "[connectors.hub.kafka]\nlinger-ms = 5\n"
        + '[connectors.none]\nurl = "kafka://broker"\n'
        + EU
        + '[connectors.eu.kafka]\nsecurity-protocol = "SASL_SSL"\nsasl-plain-password = "secret-word"\n'
        + BRIDGE
        + 'start-position = "first"\ngap-policy = "go"\npreserve-partitions = 1\n'
        + "topic-replication-factor = 0\n"
        + 'concurrency = 0\ncheck-producer-ids = "yes"\njournal-topic = "a b"\nmax-hops = 0\n'
        + "create-topic = true\n"
        + '[[bridges]]\nname = "two"\nsource-connector = "eux"\nqueue-name = ["!a"]\n'
        + 'static-connectors = ["us", "hub"]\nforwarding-address = "us.{adress}"\n'
    )
    found = problems(validate, text)
    keys = {line.partition(": ")[0]: line for line in found}
    assert set(keys) >= {
        "connectors.us.kafka.security-protocol", "connectors.us.kafka.sasl-mechanism",
        "connectors.us.kafka.fetch-max-byts", "connectors.us.kafka.linger-ms",
        "connectors.us.kafka.compression-type",
        "connectors.hub.kafka", "connectors.none.url", "connectors.eu.kafka.sasl-plain-username",
        "bridges[0].start-position (one)", "bridges[0].gap-policy (one)",
        "bridges[0].preserve-partitions (one)",
        "bridges[0].topic-replication-factor (one)", "bridges[0].concurrency (one)",
        "bridges[0].check-producer-ids (one)", "bridges[0].journal-topic (one)", "bridges[0].max-hops (one)",
        "bridges[0].create-topic (one)", "bridges[1].source-connector (two)", "bridges[1].queue-name (two)",
        "bridges[1].static-connectors[1] (two)", "bridges[1].forwarding-address (two)",
    }  # fmt: skip
    assert keys["connectors.us.kafka.fetch-max-byts"].endswith("did you mean fetch-max-bytes?")
    assert keys["bridges[0].create-topic (one)"].endswith("did you mean create-topics?")
    assert keys["bridges[1].source-connector (two)"].endswith("did you mean eu?")
    assert "secret-word" not in "".join(found)


def test_run_refuses_wrong_settings_before_anything_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(US + '[connectors.us.kafka]\nacks = "0"\n')
    ended = command("run", "--settings", str(file))
    assert (ended.code, ended.out) == (2, "")
    assert "connectors.us.kafka.acks" in ended.err
    assert list(tmp_path.iterdir()) == [file]


def test_a_password_comes_from_a_file_and_is_shown_nowhere(validate: Validate, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret-word\n")
    kafka = (
        '[connectors.us.kafka]\nsecurity-protocol = "SASL_PLAINTEXT"\nsasl-mechanism = "SCRAM-SHA-512"\n'
        'sasl-plain-username = "${KAFKA_USER}"\nsasl-plain-password = "${file:password}"\n'
    )
    assert validate(US + kafka, KAFKA_USER="bridge").code == 0
    (line,) = problems(validate, US + kafka + 'sasl-plain-passwort = "secret-word"\n', KAFKA_USER="bridge")
    assert "secret-word" not in line
    (line,) = problems(validate, US + kafka)
    assert line.startswith("connectors.us.kafka.sasl-plain-username: ")
    assert "KAFKA_USER" in line
