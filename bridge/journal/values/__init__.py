"""Values of the journal: requests, options, queues' cursors, stored blocks."""
