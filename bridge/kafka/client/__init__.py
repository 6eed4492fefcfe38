"""Connections to a Kafka cluster: options, security, clients, requests, metadata, and what errors mean."""
