"""Which process has which lane: consumer groups that read nothing."""
