"""Kafka as a target: one transaction after another, with coverage, IDs and dead letters."""
