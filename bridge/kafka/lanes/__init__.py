"""The lanes that each process owns, by consumer groups that read nothing."""
