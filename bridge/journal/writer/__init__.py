"""The writer thread: decides, stores, trims and checkpoints, one commit group after another."""
