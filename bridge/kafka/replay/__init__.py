"""What replay plans and audits ask of Kafka: records by offset, IDs, copies, and ends of partitions."""
