"""Sending again what a replay plan names: which of it is missing, and the one batch at a time."""
