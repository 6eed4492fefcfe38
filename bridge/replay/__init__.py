"""Sends the messages that a replay plan names again: finds those that are missing, and sends one batch at a
time.
"""
