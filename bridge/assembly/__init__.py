"""Bridges, replays and credentials, made of their ends by the settings."""
