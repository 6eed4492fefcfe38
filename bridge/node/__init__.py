"""A running node: wired, opened, operated and drained; and decisions about one that does not run."""
