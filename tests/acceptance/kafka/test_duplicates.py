"""Duplicate IDs through Kafka ends (semantics D57: D1 to D6, D13 to D17, D33 and others restated)."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import ID_HEADER, Record, plain, read, send, values, with_id
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.conftest import Clusters


def sizes(entries: int, of_address: Mapping[str, int] | None = None, *, persist: bool = True) -> str:
    """TOML of ID cache sizes; of an address by its name."""
    text = f"[duplicate-detection]\nid-cache-size = {entries}\npersist-id-cache = {str(persist).lower()}\n"
    for address, size in (of_address or {}).items():
        text += f'[address-settings."{address}"]\nid-cache-size = {size}\n'
    return text


def numbered(first: int, end: int) -> list[Record]:
    return [with_id(b"%d" % number, b"id-%d" % number) for number in range(first, end)]


def test_the_first_copy_of_an_id_is_kept(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """D1, D2, D13, B9: m0 (no id), a, a, a, b, b, a; counted and logged; the source is passed over."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    ids = [b"a", b"a", b"a", b"b", b"b", b"a"]
    sent = [*plain("0", "0"), *(with_id(b"%d" % place, one) for place, one in enumerate(ids, 1))]
    send(clusters.a, topic, sent)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    await_progress(clusters.a, bridge, topic)
    assert values(read(clusters.b, topic, 4)) == [b"0", b"0", b"1", b"4"]
    label = f'{{bridge="{bridge}",kind="producer"}}'
    turned = f'{{kind="producer",bridge="{bridge}"}}'
    samples = node.metrics()
    name = "core_bridge_duplicates_rejected_total"
    assert samples.get(name + label, samples.get(name + turned)) == 4
    assert node.event("duplicate-rejected", bridge=bridge)["count"] == 4


def test_an_id_is_bytes_and_the_last_header_counts(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """D3: `abc` by Kafka and by HTTP are one ID; NUL and 0xFF work; the last header counts."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    odd = b"\0\xff" + bytes(range(22))
    sent = [
        with_id(b"0", b"abc"),
        Record(b"1", headers=((ID_HEADER, b"other"), ("x", b"y"), (ID_HEADER, b"abc"))),
        with_id(b"2", odd),
        Record(b"3", b"key", headers=(("x", b"y"), (ID_HEADER, odd))),
        with_id(b"4", b"abc\0"),
    ]
    send(clusters.a, topic, sent)
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    await_progress(clusters.a, bridge, topic)
    assert values(read(clusters.b, topic, 3)) == [b"0", b"2", b"4"]


def test_an_empty_or_over_long_id_is_a_dead_letter(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """D3: 400 over HTTP is REFUSED here; what is around it goes on."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, [*plain("0"), with_id(b"1", b""), with_id(b"2", b"x" * 1025), *plain("3")])
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, dead_letter_address=letters)).start()
    assert values(read(clusters.b, topic, 2)) == [b"0", b"3"]
    found = read(clusters.b, letters, 2)
    assert values(found) == [b"1", b"2"]
    reasons = [letter.header("core-bridge-reason") or b"" for letter in found]
    assert all(reason.startswith(b"INVALID_DUPLICATE_ID") for reason in reasons), reasons


def test_a_cache_is_a_ring_of_each_address(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """D4, D5: n = 10 on two topics: 10, the same again, 10 new ones, those again, the first again."""
    bridge, topics = named("a-to-b"), [named("one"), named("two")]
    for topic in topics:
        clusters.a.create_topic(topic)
    rest = sizes(10) + kafka_bridge(clusters._asdict(), bridge, queue_name=topics)
    make_node(rest).start()
    expected: list[bytes] = []
    for first, fresh in ((0, True), (0, False), (10, True), (10, False), (0, True)):
        batch = numbered(first, first + 10)
        for topic in topics:
            send(clusters.a, topic, batch)
        expected += [record.value or b"" for record in batch if fresh]
        for topic in topics:
            await_progress(clusters.a, bridge, topic)
            assert values(read(clusters.b, topic, len(expected))) == expected


def test_a_rejected_id_does_not_grow_younger(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """D6, D8: n = 3: a b c d, then b c d (known), a (d took its place), b (a took it); n = 1 elsewhere."""
    bridge, three, one = named("a-to-b"), named("three"), named("one")
    for topic in (three, one):
        clusters.a.create_topic(topic)
    send(clusters.a, three, [with_id(letter.encode(), letter.encode()) for letter in "abcdbcdab"])
    send(clusters.a, one, [with_id(letter.encode(), letter.encode()) for letter in "1221"])
    rest = sizes(3, {one: 1}) + kafka_bridge(clusters._asdict(), bridge, queue_name=[three, one])
    make_node(rest).start()
    for topic in (three, one):
        await_progress(clusters.a, bridge, topic)
    assert values(read(clusters.b, three, 6)) == [b"a", b"b", b"c", b"d", b"a", b"b"]
    assert values(read(clusters.b, one, 3)) == [b"1", b"2", b"1"]


def test_a_cache_of_none_lets_everything_pass(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """D10, D11: n = 0; eight records with ids -, a, a1, a, a, b, b, a: all in order; no replays."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    ids = [b"a", b"a1", b"a", b"a", b"b", b"b", b"a"]
    send(clusters.a, topic, [*plain("0"), *(with_id(b"%d" % place, one) for place, one in enumerate(ids, 1))])
    node = make_node(sizes(0) + kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    assert values(read(clusters.b, topic, 8)) == [b"%d" % number for number in range(8)]
    assert node.event("bridge-started")["id-cache-size"] == 0
    assert node.stop() == 0
    node.start()
    send(clusters.a, topic, plain("8"))
    read(clusters.b, topic, 9)


def test_ids_outlive_restarts_and_a_full_ring_does_too(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """D14, D13: n = 5, exactly full; a new process on another machine (no journal) rejects the same five."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    rest = sizes(5) + kafka_bridge(clusters._asdict(), bridge, queue_name=topic)
    node = make_node(rest).start()
    send(clusters.a, topic, numbered(0, 5))
    read(clusters.b, topic, 5)
    assert node.stop() == 0
    other = make_node(rest, "node-2").start()
    send(clusters.a, topic, [*numbered(0, 5), *plain("end")])
    assert values(read(clusters.b, topic, 6))[-1] == b"end"
    assert other.stop() == 0


def test_ids_are_not_kept_when_told_so(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """D16, D17: persist true, false, true over three starts: the second forgets what was stored."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    settings = kafka_bridge(clusters._asdict(), bridge, queue_name=topic)
    node = make_node(sizes(10) + settings).start()
    send(clusters.a, topic, [with_id(b"1", b"a"), with_id(b"no", b"a")])
    expected = [b"1"]
    for persist in (False, True):
        await_progress(clusters.a, bridge, topic)
        assert values(read(clusters.b, topic, len(expected))) == expected
        assert node.stop() == 0
        node.rest = sizes(10, persist=persist) + settings
        node.start()
        send(clusters.a, topic, [with_id(str(persist).encode(), b"a"), with_id(b"no", b"a")])
        expected.append(str(persist).encode())
    await_progress(clusters.a, bridge, topic)
    assert values(read(clusters.b, topic, 3)) == [b"1", b"False", b"True"]


def test_ids_committed_in_transactions_are_known(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """D15, D31 to D33: an aborted transaction frees its IDs; a committed one again brings nothing."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    pair = [with_id(b"first a", b"a"), with_id(b"first b", b"b")]
    send(clusters.a, topic, [with_id(b"aborted", b"a")], transaction=named("tx"), abort=True)
    send(clusters.a, topic, pair, transaction=named("tx"))
    send(clusters.a, topic, [with_id(b"second a", b"a"), with_id(b"second b", b"b")], transaction=named("tx"))
    send(clusters.a, topic, plain("end"))
    assert values(read(clusters.b, topic, 3)) == [b"first a", b"first b", b"end"]


def test_ids_of_a_shrunk_cache_are_the_newest(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """D18, D20, D21: 15 IDs, then n = 10: the newest 10 are known, the oldest are not; growing loses none."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    settings = kafka_bridge(clusters._asdict(), bridge, queue_name=topic)
    send(clusters.a, topic, numbered(0, 15))
    node = make_node(sizes(15) + settings).start()
    read(clusters.b, topic, 15)
    assert node.stop() == 0
    node.rest = sizes(10) + settings
    node.start()
    send(clusters.a, topic, [*numbered(5, 15), *numbered(0, 1)])
    await_progress(clusters.a, bridge, topic)
    assert values(read(clusters.b, topic, 16))[15:] == [b"0"]
    assert node.stop() == 0
    node.rest = sizes(100) + settings
    node.start()
    send(clusters.a, topic, [*numbered(6, 15), *numbered(0, 1), *plain("end")])
    assert values(read(clusters.b, topic, 17))[16:] == [b"end"]


def test_check_producer_ids_is_what_the_settings_say(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """auto, true and false of one topic by three bridges; said in `bridge-started`."""
    topic = named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, [with_id(b"1", b"a"), with_id(b"2", b"a"), *plain("3")])
    rest = connector_tables(clusters._asdict())
    answers: dict[str, tuple[str | bool, bool]] = {
        "auto": ("auto", True), "on": (True, True), "off": (False, False),
    }  # fmt: skip
    for name, (written, _) in answers.items():
        rest += bridge_table(
            named(name), queue_name=topic, source_connector="a", static_connectors=["b"],
            forwarding_address=name + ".{address}", check_producer_ids=written,
        )  # fmt: skip
    node = make_node(rest).start()
    for name, (_, checks) in answers.items():
        assert node.event("bridge-started", bridge=named(name))["check-producer-ids"] is checks
        expected = [b"1", b"3"] if checks else [b"1", b"2", b"3"]
        assert values(read(clusters.b, f"{name}.{topic}", len(expected))) == expected


def test_two_bridges_bring_the_same_on_purpose(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """B11: two bridges of one topic to one target topic: both copies, with one stamped ID."""
    topic = named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1"))
    rest = connector_tables(clusters._asdict())
    for name in ("one", "two"):
        rest += bridge_table(named(name), queue_name=topic, source_connector="a", static_connectors=["b"])
    make_node(rest).start()
    found = read(clusters.b, topic, 4)
    assert sorted(map(str, values(found))) == ["b'0'", "b'0'", "b'1'", "b'1'"]
    assert len({record.ids[0] for record in found}) == 2


def test_ids_are_known_where_they_were_sent_also_through_the_http_of_a_node(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """D57: Kafka -> node: IDs of records and of POSTs meet in one cache of the address."""
    topic = named("orders")
    clusters.a.create_topic(topic)
    rest = connector_tables({"a": clusters.a})
    rest += bridge_table(named("in"), queue_name=topic, source_connector="a", static_connectors=["journal"])
    node = make_node(rest).start()
    send(clusters.a, topic, [with_id(b"1", b"abc"), with_id(b"2", b"abc"), with_id(b"3", b"d")])
    eventually(lambda: len(node.api.browse(topic)) >= 2, "two arrive")
    assert node.api.send(topic, b"again", Duplicate_Id="abc").json == {"verdict": "duplicate"}
    assert node.api.send(topic, b"4", Duplicate_Id="e").json["verdict"] == "stored"
    send(clusters.a, topic, [with_id(b"no", b"e"), *plain("5")])
    eventually(lambda: len(node.api.browse(topic)) >= 4, "the last arrives")
    assert node.api.bodies(topic) == ["1", "3", "4", "5"]
