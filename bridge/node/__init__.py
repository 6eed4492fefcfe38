"""A running node: wired, opened, operated and drained; and decisions about a node that does not run."""
