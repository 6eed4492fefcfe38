"""Kafka at both ends. Of `bridge`, only this package and the demo import aiokafka (docs/architecture.md).

`client` reaches a cluster, `records` turns messages into records and back; `source` and `target` are the two
ports; `journal_topic` keeps what a target remembers, `recovery` ends what brokers have left open; `lanes`
says which lanes are this process's, and `bridge.relay.lanes` runs them; `replay` reads again what was sent.
"""
