"""Kafka at both ends. Of `bridge`, only this package imports aiokafka (docs/architecture.md).

`identity` names things, `connection` makes clients, `metadata` asks what the cluster is now; `source` and
`target` are the two ports; `journal_topic` keeps what a target remembers; `group_ownership` says which lanes
are this process's, and `bridge.lanes` runs them.
"""
