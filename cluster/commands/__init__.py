"""The commands of a cluster: entries of `bridge.cli.COMMANDS`."""
