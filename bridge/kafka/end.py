"""A Kafka cluster as a kind of end: connectors with ``kafka://``. Bridges read and deliver there."""

from __future__ import annotations

from typing import Final

from bridge.end_kind import EndKind, EndsOf, NodeContext, NodeEnds


class KafkaKind(EndKind):
    """A cluster; aiokafka is loaded where an end is made."""

    has_lanes = True
    stands_alone = True
    has_transactions = True
    #: Who reads uncommitted also reads what was aborted and sent again.
    readers = "isolation.level=read_committed"

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:
        """Sources and targets at clusters."""
        from bridge.kafka.node_ends import KafkaEnds

        return KafkaEnds(node, others)


KIND: Final = KafkaKind()
