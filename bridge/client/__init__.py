"""How commands and the demo reach a node over HTTP and the terminal they run in."""
