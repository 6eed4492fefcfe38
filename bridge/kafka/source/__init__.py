"""Kafka as a source: reading partitions from where the target says, and committing how far it is settled."""
