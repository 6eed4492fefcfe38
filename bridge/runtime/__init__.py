"""What each process has: clock, event loop, logs, metrics, locks, and places where tests end it."""
