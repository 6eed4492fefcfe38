"""Queries of Kafka for replay plans and audits: records by offset, IDs, copies, and ends of partitions."""
