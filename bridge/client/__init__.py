"""The HTTP client of commands and the demo, and their terminal."""
