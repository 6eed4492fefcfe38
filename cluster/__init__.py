"""The cluster: which node holds what, and who gets a copy. Being built; design section 6."""
