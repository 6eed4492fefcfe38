"""A bridge's life: the two ports, the loop between them, lanes, retries, and what cannot be delivered."""
