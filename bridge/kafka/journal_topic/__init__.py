"""What a Kafka target remembers, in a compacted topic: its records, and how bridges are cut into lanes."""
