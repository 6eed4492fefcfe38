"""The cluster: which node holds what, and who gets a copy. Not built yet; design section 6."""
