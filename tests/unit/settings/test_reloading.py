"""What a reload does about each key of the settings: classified against the model, and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bridge.settings import Settings, load
from bridge.settings.describe import sections
from bridge.settings.reloading import EFFECTS, Effect, Plan, SettingsRefused, plan

SETTINGS: Final = """
[node]
name = "edge"
[acceptor]
tokens = ["t1"]
[[acceptor.users]]
name = "shop"
token = "s1"
send = ["orders"]
[operations]
[address-settings."orders.#"]
max-size-bytes = "1MiB"
[addresses.orders]
queues = ["all"]
[connectors.hub]
url = "ws://hub:61616"
token = "h1"
[connectors.other]
url = "ws://other:61616"
[connectors.eu]
url = "kafka://eu:9092"
[connectors.eu.kafka]
fetch-max-wait-ms = 5
security-protocol = "SASL_PLAINTEXT"
sasl-plain-username = "u"
sasl-plain-password = "p1"
[connectors.self]
url = "ws://self:61616"
[[bridges]]
name = "one"
queue-name = "orders"
static-connectors = ["hub"]
[[bridges]]
name = "two"
queue-name = "stock"
static-connectors = ["other"]
[[bridges]]
name = "three"
queue-name = "stock"
static-connectors = ["eu"]
"""
CLUSTER: Final = """
[[cluster-connections]]
name = "main"
connector-ref = "self"
static-connectors = ["hub"]
"""
Read = Callable[[str], Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def settings(text: str) -> Settings:
        file = tmp_path / "settings.toml"
        file.write_text(text)
        return load(file, {})

    return settings


def planned(read: Read, *replaced: tuple[str, str], text: str = SETTINGS) -> Plan:
    """What is planned where these pieces of the text are replaced."""
    after = text
    for old, new in replaced:
        assert old in after, old
        after = after.replace(old, new, 1)
    return plan(read(text), read(after))


def test_every_key_of_the_model_is_classified_and_nothing_else() -> None:
    """A new key fails here until `EFFECTS` says what a reload does about it."""
    keys = {f"{section.key}.{key}" for section in sections() for key in section.fields}
    tables = {
        *("acceptor", "operations", "acceptor.users.*", "address-settings.*", "addresses.*", "connectors.*"),
        *("connectors.*.kafka", "bridges.*", "cluster-connections.*"),
    }
    assert keys | tables == EFFECTS.keys()


def test_equal_settings_change_nothing(read: Read) -> None:
    assert not planned(read).changes_anything


def test_the_order_of_bridges_changes_nothing(read: Read) -> None:
    head, one, two, three = SETTINGS.split("[[bridges]]")
    turned = "[[bridges]]".join([head, three + "\n", two, one])
    assert not plan(read(SETTINGS), read(turned)).changes_anything


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('tokens = ["t1"]', 'tokens = ["t2"]', "acceptor.tokens"),
        ('send = ["orders"]', "link = true", "acceptor.users.shop.send"),
        ('name = "shop"', 'name = "store"', "acceptor.users.shop"),
        ("[operations]", '[operations]\ntokens = ["o"]', "operations.tokens"),
        ('max-size-bytes = "1MiB"', "retain-time = 5", 'address-settings."orders.#".max-size-bytes'),
        ('queues = ["all"]', 'queues = ["all", "more"]', "addresses.orders.queues"),
        ("[addresses.orders]", "[addresses.more]\n[addresses.orders]", "addresses.more"),
        ('token = "h1"', 'token = "h2"', "connectors.hub.token"),
        ('name = "edge"', 'name = "edge"\nlog-level = "error"', "node.log-level"),
        ("[operations]", "[operations]\n[duplicate-detection]\nid-cache-size = 20000", ""),
    ],
)
def test_what_takes_effect_in_place(read: Read, old: str, new: str, key: str) -> None:
    found = planned(read, (old, new))
    assert (found.refused, found.added, found.removed, found.changed) == ((), (), (), ())
    assert key in [change.key for change in found.in_place] or not key
    assert {change.effect for change in found.in_place} <= {Effect.IN_PLACE}


@pytest.mark.parametrize(
    ("old", "new", "bridges"),
    [
        ('queue-name = "orders"', 'queue-name = "orders"\nmax-hops = 2', ("one",)),
        ('"ws://hub:61616"', '"ws://hub2:61616"', ("one",)),
        ('"ws://other:61616"', '"wss://other:61616"', ("two",)),
        ("fetch-max-wait-ms = 5", "fetch-max-wait-ms = 6", ("three",)),
        ("fetch-max-wait-ms = 5\n", "", ("three",)),
        ('sasl-plain-password = "p1"', 'sasl-plain-password = "p2"', ("three",)),
        ('"ws://self:61616"', '"ws://self:1"', ()),
        ("[addresses.orders]", "[addresses.stock]\n[addresses.orders]", ("two", "three")),
        ("[operations]", "[operations]\n[duplicate-detection]\nid-cache-size = 7", ("three",)),
        ("max-size-bytes", "id-cache-size = 7\nmax-size-bytes", ("three",)),
        ("[addresses.orders]", "[address-settings.x]\nid-cache-size = 7\n[addresses.orders]", ("three",)),
    ],
)  # fmt: skip
def test_which_bridges_restart(read: Read, old: str, new: str, bridges: tuple[str, ...]) -> None:
    found = planned(read, (old, new))
    assert (found.refused, found.added, found.removed, found.changed) == ((), (), (), bridges)


def test_bridges_come_and_go_and_a_renamed_one_does_both(read: Read) -> None:
    more = SETTINGS + '[[bridges]]\nname = "four"\nqueue-name = "orders"\nstatic-connectors = ["other"]\n'
    found = plan(read(SETTINGS), read(more))
    assert (found.added, found.changed, found.removed) == (("four",), (), ())
    found = plan(read(more), read(SETTINGS))
    assert (found.added, found.changed, found.removed) == ((), (), ("four",))
    found = planned(read, ('name = "two"', 'name = "second"\nprevious-name = "two"'))
    assert (found.added, found.changed, found.removed) == (("second",), (), ("two",))


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ('name = "edge"', 'name = "other"\ndata-directory = "d"', 2),
        ("[operations]\n", "", 1),
        ('[acceptor]\ntokens = ["t1"]', '[acceptor]\ntokens = ["t1"]\nmax-requests = 5', 1),
        ('queues = ["all"]', 'routing-type = "ANYCAST"', 1),
        ("[operations]", "[operations]\n[delivery-log]\nenabled = false", 1),
        ("[operations]", "[operations]\n[duplicate-detection]\npersist-id-cache = false", 1),
    ],
)
def test_what_is_refused(read: Read, old: str, new: str, keys: int) -> None:
    assert len(planned(read, (old, new)).refused) == keys


def test_another_number_of_workers_is_refused(read: Read) -> None:
    mirror = (
        '[[bridges]]\nname = "mirror"\nsource-connector = "eu"\nqueue-name = "orders"\n'
        'forwarding-address = "copies"\nstatic-connectors = ["eu"]\n'
    )
    found = planned(read, ('name = "edge"', 'name = "edge"\nworkers = 2'), text=SETTINGS + mirror)
    assert [change.key for change in found.refused] == ["node.workers"]


def test_a_cluster_and_the_connectors_that_it_names_stay_as_they_are(read: Read) -> None:
    text = SETTINGS + CLUSTER

    def refused(old: str, new: str) -> list[str]:
        return [change.key for change in planned(read, (old, new), text=text).refused]

    assert refused('"ws://hub:61616"', '"ws://hub2:61616"') == ["connectors.hub.url"]
    assert refused('"ws://self:61616"', '"ws://self2:61616"') == ["connectors.self.url"]
    assert refused('"ws://other:61616"', '"ws://other2:61616"') == []
    assert refused('token = "h1"', 'token = "h2"') == []
    assert refused('name = "main"', 'name = "main"\nmax-hops = 2') == ["cluster-connections.main.max-hops"]
    assert [change.key for change in plan(read(SETTINGS), read(text)).refused] == ["cluster-connections.main"]


def test_a_refusal_names_key_rule_and_both_values_and_no_secret(read: Read) -> None:
    changes = (
        ('name = "edge"', 'name = "other"'),
        ("[operations]\n", ""),
        ('sasl-plain-password = "p1"', 'sasl-plain-password = "p2"'),
    )
    found = planned(
        read, *changes, text=SETTINGS + CLUSTER.replace('"hub"]', '"hub", "eu"]').replace("self", "other")
    )
    refused = SettingsRefused.of("edge.toml", found.refused)
    rule = "cannot change while the node runs (restart it); it has"
    assert refused.lines() == [
        f'edge.toml: node.name: {rule} "edge"; found "other"',
        f"edge.toml: operations: {rule} a table; found nothing",
        f"edge.toml: connectors.eu.kafka.sasl-plain-password: {rule} ***; found ***",
        "3 problems",
    ]
    assert (refused.code, refused.status) == ("SETTINGS_REFUSED", 409)
