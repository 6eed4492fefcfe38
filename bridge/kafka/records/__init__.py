"""Messages as Kafka records and back: names, headers, partitions, record batches, rules of topics."""
