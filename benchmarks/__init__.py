"""The performance of core bridge on one machine, next to a raw limit of the same run: `make bench`."""
