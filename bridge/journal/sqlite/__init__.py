"""The journal's file: schema, connections, queries, and its space on the disk."""
