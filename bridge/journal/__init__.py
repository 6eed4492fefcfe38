"""The journal: a node's embedded store in SQLite, and the two ends that are made of it.

Read in the order that a message takes: `journal` (the event loop's side), `units` (what is handed over),
`writer` (the thread, group commit), `group` and `queues` (decisions), `rows` (one transaction), `space`
(checkpoints, shrinking), `reader` (reading threads), `source` and `target` (the ports).
"""
