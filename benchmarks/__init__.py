"""What core bridge reaches on one machine, next to a raw limit measured in the same run: `make bench`."""
