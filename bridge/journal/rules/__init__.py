"""What commands to the journal change: decided in memory, collected in commit groups."""
