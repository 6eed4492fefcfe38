"""Kafka at both ends. aiokafka is imported here and nowhere else (design section 5).

`identity` names things, `connection` makes clients, `metadata` asks what the cluster is now; `source` and
`target` are the two ports; `journal_topic` keeps what a target remembers; `lanes` decides who relays what.
"""
