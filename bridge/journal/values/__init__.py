"""What the journal is asked, opened with and made of: requests, options, queues' cursors, stored blocks."""
