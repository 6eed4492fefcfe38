"""Where Artemis drops messages and a node keeps them, or the other way round, the report says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.migrate.migration import migrate

CONNECTOR = '<connectors><connector name="c">tcp://localhost:1</connector></connectors>'


def report(directory: Path, core: str) -> list[str]:
    """The remarks, without their places."""
    path = directory / "broker.xml"
    path.write_text(f"<core>{core}</core>")
    return [str(remark).split(": ", 1)[1] for remark in migrate(path, {}).remarks]


def address_settings(**patterns: dict[str, str]) -> str:
    return "".join(
        f'<address-setting match="{match}">{"".join(map(key, keys, keys.values()))}</address-setting>'
        for match, keys in patterns.items()
    )


def key(name: str, value: str) -> str:
    return f"<{name}>{value}</{name}>"


@pytest.mark.parametrize(
    ("keys", "kind", "name", "text", "found"),
    [
        (
            {"max-size-bytes": "100M"},
            *("check", "max-size-bytes", "an address with PAGE takes what the disk holds", "100M"),
        ),
        (
            {"max-size-bytes": "100M", "page-limit-bytes": "1G"},
            *("idle", "max-size-bytes", "bounds Artemis's memory", "100M"),
        ),
        (
            {"page-limit-bytes": "1G", "page-full-policy": "DROP"},
            *("check", "page-full-policy", "DROP becomes FAIL: the limit is page-limit-bytes 1G", "DROP"),
        ),
        (
            {"page-limit-messages": "7", "page-full-policy": "DROP"},
            *("check", "page-full-policy", "the address takes what the disk holds", "DROP"),
        ),
        (
            {"page-limit-messages": "7"},
            *("left", "page-limit-messages", "without it an address takes what the disk holds", "7"),
        ),
        (
            {"max-size-messages": "7", "address-full-policy": "DROP"},
            *("left", "max-size-messages", "without it an address takes what the disk holds", "7"),
        ),
        (
            {"max-size-bytes": "100M", "address-full-policy": "DROP"},
            *("check", "address-full-policy", "FAIL answers ADDRESS_FULL at once", "DROP at 100M"),
        ),
        (
            {"max-size-bytes": "0", "address-full-policy": "DROP"},
            *("check", "max-size-bytes", "no limit: an address takes what the disk holds", "0"),
        ),
        (
            {"address-full-policy": "BLOCK", "page-limit-bytes": "1G"},
            *("idle", "page-limit-bytes", "only PAGE reads it", "1G"),
        ),
    ],
)
def test_a_limit_that_acts_in_another_way_is_named_with_its_number(
    keys: dict[str, str], kind: str, name: str, text: str, found: str, tmp_path: Path
) -> None:
    told = report(tmp_path, f"<address-settings>{address_settings(m=keys)}</address-settings>")
    (line,) = [line for line in told if line.startswith(f'{kind}: address-setting "m": {name}: ')]
    assert text in line
    assert line.endswith(f"; found {found}")


def test_a_policy_that_a_pattern_inherits_is_named_where_its_size_is(tmp_path: Path) -> None:
    inherited = address_settings(**{"#": {"address-full-policy": "DROP"}, "m": {"max-size-bytes": "5M"}})
    assert (
        'check: address-setting "m": max-size-bytes: no message is dropped behind its sender\'s back: FAIL '
        "answers ADDRESS_FULL at once; found DROP at 5M"
    ) in report(tmp_path, f"<address-settings>{inherited}</address-settings>")


KEPT = "no queue in broker.xml: Artemis drops what is sent there, and here it is kept, up to max-size-bytes"


def test_a_diverts_target_without_a_queue_is_named_with_the_size_that_it_fills_up_to(tmp_path: Path) -> None:
    sizes = address_settings(audit={"max-size-bytes": "10M"}, news={"address-full-policy": "FAIL"})
    diverts = "".join(
        f'<divert name="{target}"><address>orders</address>{key("forwarding-address", target)}</divert>'
        for target in ("audit", "news", "read")
    )
    addresses = (
        '<address name="read"><multicast><queue name="q"/></multicast></address>'
        '<address name="orders"><multicast/></address>'
    )
    settings = f"<address-settings>{sizes}</address-settings><addresses>{addresses}</addresses>"
    told = report(tmp_path, f"{settings}<diverts>{diverts}</diverts>")
    assert [line for line in told if KEPT in line] == [
        f"check: divert audit: forwarding-address: audit has {KEPT}; found 1048576GiB, in broker.xml 10M",
        f"check: divert news: forwarding-address: news has {KEPT}; found 1048576GiB",
    ]


def test_an_address_without_a_queue_is_named(tmp_path: Path) -> None:
    addresses = '<addresses><address name="news"><multicast/></address></addresses>'
    assert report(tmp_path, addresses) == [f"check: address news: {KEPT}; found 1048576GiB"]


PASSED = (
    "check: bridge b: filter: in Artemis messages that it does not match stay in the queue; here the bridge "
    "reads the address, passes them, and counts them as filtered"
)
AS_IN_ARTEMIS = "as in Artemis, messages that it does not match stay in the queue, for its readers"
STAY = f"idle: bridge b: filter: {AS_IN_ARTEMIS}"


@pytest.mark.parametrize(
    ("addresses", "line"),
    [
        ("", PASSED),
        ('<address name="x"><anycast><queue name="q"/></anycast></address>', STAY),
        ('<address name="x"><multicast><queue name="q"/></multicast></address>', STAY),
    ],
)
def test_the_report_says_what_becomes_of_messages_that_a_bridges_filter_does_not_match(
    addresses: str, line: str, tmp_path: Path
) -> None:
    bridge = (
        '<bridges><bridge name="b"><queue-name>q</queue-name><filter string="a = 1"/><static-connectors>'
        "<connector-ref>c</connector-ref></static-connectors></bridge></bridges>"
    )
    assert line in report(tmp_path, f"{CONNECTOR}<addresses>{addresses}</addresses>{bridge}")
