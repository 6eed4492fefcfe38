"""The changes that commands make to the journal: decided in memory, collected in commit groups."""
