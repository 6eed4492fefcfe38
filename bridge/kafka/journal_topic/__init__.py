"""The state of a Kafka target, in a compacted topic: its records, and how bridges are cut into lanes."""
