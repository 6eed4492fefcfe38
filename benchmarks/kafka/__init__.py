"""Kafka to Kafka: core bridge beside MirrorMaker 2 and raw producing, in one run on one machine."""
