"""The basis of each process: clock, event loop, logs, metrics, locks, and crash points for tests."""
