"""Transactions that brokers have left open after their end: looked for, and ended."""
