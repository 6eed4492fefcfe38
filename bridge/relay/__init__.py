"""The life of a bridge: the two ports, the loop between them, lanes, retries, and undeliverable messages."""
