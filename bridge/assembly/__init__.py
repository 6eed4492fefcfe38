"""Bridges, replays and credentials, made of their ends as the settings say."""
