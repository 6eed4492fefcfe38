"""Values that travel: messages, blocks, batches, their positions, and names of addresses and streams."""
