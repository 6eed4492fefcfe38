"""Facts to write reports from, without Spark: clean, with every kind of finding, hostile, large."""

from __future__ import annotations

from dataclasses import replace

from dedup.reconcile.page import Made
from dedup.reconcile.rows import Facts, Finding, Flow, Hour, IdCache, Input, Latency, Total

#: 2026-11-21 08:00:00 UTC.
START_MS = 1_795_248_000_000
HOUR_MS = 3_600_000
MADE = Made(at_ms=START_MS + 20 * HOUR_MS, version="0.1.0", late_after_ms=60_000)

STORE = "7d2fe21a-3b6e-4a53-9d0c-0b6f5bf3b572:5bf3b5720f8947cb"
KAFKA_STORE = "kafka:MkU3OEVBNTcwNTJENDM2Qk"
ORDERS = "journal:0b6f92560decffe3:orders:0"
INVOICES = "journal:0b6f92560decffe3:invoices:0"
EVENTS = "kafka:MkU3OEVBNTcwNTJENDM2Qk:tq1xNSYyQ4eHTXNq0mK0aw:{}"

#: Breaks out of text, an attribute and a comment, turns the line round, and cannot be encoded.
HOSTILE = "\"'><script>alert(1)</script><!-- \u202eabc\x1b[31m\x00\ud800 &amp; é"


def flow(bridge: str | None = "orders-to-hub", stream: str = ORDERS, **changed: object) -> Flow:
    """A flow of 1,200,000 messages, all of which arrived."""
    clean = Flow(
        bridge=bridge,
        stream=stream,
        store=STORE,
        address="orders",
        target="hub",
        sent=1_200_000,
        received=1_200_000,
        lost=0,
        doubled=0,
        unsent=0,
        out_of_order=0,
        late=0,
        open=0,
        refused=0,
        rejected=0,
        unknown=0,
        sent_upto=1_200_000,
        received_upto=1_200_000,
        first_ms=START_MS,
        last_ms=START_MS + 14 * HOUR_MS - 5_000,
        sent_ms=START_MS + 14 * HOUR_MS - 4_000,
        waiting=0,
        waiting_since_ms=None,
    )
    return replace(clean, **changed)  # type: ignore[arg-type]


def finding(kind: str, first: int | None, last: int | None, **changed: object) -> Finding:
    """A finding of the bridge `orders-to-hub`."""
    count = 1 if first is None or last is None else last - first + 1
    plain = Finding(kind, "orders-to-hub", ORDERS, STORE, "orders", first, last, count, None, None)
    return replace(plain, **changed)  # type: ignore[arg-type]


def totals(findings: list[Finding]) -> list[Total]:
    """The totals of findings that are not cut."""
    kinds = dict.fromkeys(found.kind for found in findings)
    return [
        Total(
            kind,
            sum(found.kind == kind for found in findings),
            sum(f.count for f in findings if f.kind == kind),
        )
        for kind in kinds
    ]


def clean() -> Facts:
    """Two bridges and a client's sends; everything arrived."""
    kafka = [
        flow(
            "eu-to-us",
            EVENTS.format(partition),
            store=KAFKA_STORE,
            address="shop.events",
            target="us",
            sent=300_000,
            received=300_000,
        )
        for partition in range(4)
    ]
    client = flow(None, ORDERS, address="orders", target="", sent=0, received=1_200_000, rejected=1_204)
    flows = [*kafka, flow(), client]
    return Facts(
        flows=flows,
        findings=[],
        totals=[],
        inputs=[
            Input(
                f"/var/log/core-bridge/{node}-20261121T{8 + part:02}0000-{part + 1:06}.jsonl",
                f"{part:02x}{n}" * 16 + "0" * 16,
                4_000 + part,
                0,
            )
            for n, node in enumerate(("shop", "hub"))
            for part in range(3)
        ],
        hours=[
            Hour(bridge, START_MS + hour * HOUR_MS, messages, messages)
            for bridge, size in (("orders-to-hub", 85_714), ("eu-to-us", 84_000))
            for hour, messages in enumerate(
                size * wave // 10 for wave in (2, 4, 8, 13, 15, 14, 11, 12, 14, 16, 13, 9, 6, 3)
            )
        ],
        latency=[
            Latency(
                "eu-to-us", EVENTS.format(p), "shop.events", 300_000, 11.0 + p, 24, 61, 180, 940.0 * (p + 1)
            )
            for p in range(4)
        ]
        + [Latency("orders-to-hub", ORDERS, "orders", 1_200_000, 8, 19, 43, 120, 2_150)],
        id_caches=[IdCache(STORE, "orders", 1_200_000, 1_204, 14_233)],
    )


def faulty() -> Facts:
    """The same with every kind of finding."""
    calm = clean()
    findings = [
        finding("lost", 40_112, 40_131),
        finding("lost", 881_920, 881_923),
        finding("doubled", 512_000, 512_001),
        finding("repeated-id", 702_118, 702_118, id="order-4711", detail="accepted at 688,020 too"),
        finding("unsent", 990_001, 990_001),
        finding(
            "unknown",
            120_000,
            120_959,
            bridge="eu-to-us",
            stream=EVENTS.format(2),
            store=KAFKA_STORE,
            address="shop.events",
        ),
        finding("out-of-order", 300_400, 300_415),
        finding("refused", 77, 77, detail="MESSAGE_TOO_LARGE"),
        finding("late", 640_000, 640_311),
        finding("open", 1_199_500, 1_199_999),
        finding("rejected", None, None, bridge=None, id="order-4712"),
    ]
    flows = [
        replace(
            found,
            lost=24,
            doubled=3,
            unsent=1,
            out_of_order=16,
            refused=1,
            late=312,
            open=500,
            received=1_199_476,
        )
        if found.bridge == "orders-to-hub"
        else replace(found, unknown=960)
        if found.stream == EVENTS.format(2)
        else found
        for found in calm.flows
    ]
    hours = [
        replace(hour, received=hour.received * 7 // 10) if hour.hour_ms == START_MS + 5 * HOUR_MS else hour
        for hour in calm.hours
    ]
    inputs = [replace(calm.inputs[0], unreadable=8), *calm.inputs[1:]]
    return replace(calm, flows=flows, findings=findings, totals=totals(findings), hours=hours, inputs=inputs)


def hostile() -> Facts:
    """Every text that comes from a log is `HOSTILE`."""
    wrong = {"stream": HOSTILE, "store": HOSTILE, "address": HOSTILE}
    findings = [finding("lost", 0, 0, bridge=HOSTILE, id=HOSTILE, detail=HOSTILE, **wrong)]
    return Facts(
        flows=[flow(HOSTILE, target=HOSTILE, lost=1, **wrong)],
        findings=findings,
        totals=totals(findings),
        inputs=[Input(HOSTILE, "ab" * 32, 1, 0)],
        hours=[Hour(HOSTILE, START_MS, 1, 0)],
        latency=[Latency(HOSTILE, HOSTILE, HOSTILE, 1, 0, 0, 0, 0, 0)],
        id_caches=[IdCache(HOSTILE, HOSTILE, 1, 1, 1)],
    )


def large() -> Facts:
    """More of everything than a page can show."""
    many = range(2_500)
    findings = [finding("lost", 3 * place, 3 * place) for place in range(10_000)]
    return Facts(
        flows=[flow(f"bridge-{place // 500}", EVENTS.format(place), lost=4) for place in many],
        findings=findings,
        totals=[Total("lost", 1_000_000, 1_000_000)],
        inputs=[Input(f"/logs/node-{place:06}.jsonl", "ab" * 32, 10, 0) for place in many],
        hours=[Hour(f"bridge-{place % 5}", START_MS + place * HOUR_MS, 10, 10) for place in many],
        latency=[Latency("b", EVENTS.format(place), "a", 1, 1, 2, 3, 4, 5) for place in range(1_000)],
        id_caches=[],
    )
