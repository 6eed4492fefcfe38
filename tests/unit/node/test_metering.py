"""Series of bridges at a scrape: what is not known has none."""

from __future__ import annotations

from bridge.assembly.summary import BridgeSummary
from bridge.journal.sqlite.reader import BridgeLag
from bridge.node.bridge_set import NodeBridge
from bridge.node.metering import Metering, lag_of
from bridge.relay.counts import Counts
from bridge.relay.lag import PartitionStatus
from bridge.relay.lifecycle import State
from tests.fakes.workers import ObedientBridge

SUMMARY = BridgeSummary("eu:orders", "us", "exactly-once", True, 20_000)
FROM_JOURNAL = BridgeSummary("journal:orders", "us", "exactly-once", True, 20_000, from_journal=True)


async def scraped(relay: ObedientBridge, *, with_partitions: bool = False) -> set[str]:
    """The samples of the bridge, without its name."""
    metering = Metering(with_partitions=with_partitions)
    metering._bridges.add("eu-to-us", relay, SUMMARY)
    lines = (await metering.text(ready=True)).decode().splitlines()
    return {line.replace('bridge="eu-to-us"', "").replace("core_bridge_", "") for line in lines}


async def test_a_lag_that_is_not_known_has_no_series() -> None:
    relay = ObedientBridge()
    relay.lag = None
    assert not [line for line in await scraped(relay) if line.startswith(("lag_", "parked_"))]
    relay.lag = (0, None)
    assert {"lag_messages{} 0.0", "lag_seconds{} 0.0"} <= await scraped(relay)


async def test_what_is_parked_is_shown_where_it_is_known() -> None:
    relay = ObedientBridge()
    relay.state = State.RUNNING
    assert "parked_partitions{} 0.0" in await scraped(relay)
    relay.state, relay.counts = State.CONNECTING, Counts(parked=2)
    assert "parked_partitions{} 2.0" in await scraped(relay)


async def test_partitions_are_metrics_where_that_is_set() -> None:
    relay = ObedientBridge()
    relay.rows = [PartitionStatus("orders", 3, 5, 12)]
    assert not [line for line in await scraped(relay) if line.startswith("partition_")]
    found = await scraped(relay, with_partitions=True)
    labels = '{,partition="3",topic="orders"}'
    assert {
        f"partition_position{labels} 5.0",
        f"partition_end{labels} 12.0",
        f"partition_lag_messages{labels} 7.0",
    } <= found


def test_the_lag_of_a_bridge_that_reads_the_journal_is_the_journals() -> None:
    bridge = NodeBridge(ObedientBridge(), FROM_JOURNAL)
    lags = [BridgeLag("a", "orders", 3, 700), BridgeLag("a", "bills", 1, 600), BridgeLag("b", "orders", 9, 1)]
    assert lag_of("a", bridge, lags) == (4, 600)
    assert lag_of("c", bridge, lags) == (0, None)
    assert lag_of("a", bridge, None) is None, "the journal could not be read"
