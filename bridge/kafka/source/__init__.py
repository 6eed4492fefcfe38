"""Kafka as a source: reads partitions from the target's positions on, and commits the settled offsets."""
