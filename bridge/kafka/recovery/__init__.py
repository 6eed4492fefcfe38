"""Finds and ends transactions that brokers have left open after their end."""
