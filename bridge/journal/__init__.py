"""The journal: a node's embedded store in SQLite, and the two ends that are made of it.

Read in the order that a message takes: `journal` (the event loop's side), `units` (what is handed over),
`writer` (the thread, group commit), `deciding`, `clients`, `relayed` and `queues` (the rules, on a `group`
and the `state`), `rows` with `id_rows` and `trimming` (one transaction), `space` (checkpoints, shrinking),
`room` with `reserve`, `log_file` and `holding` (a full disk, full addresses), `opening` and `loading`
(before, and after a failure), `reading_threads`, `reader` and `pages` (reading), `source` and `target` (the
ports).
"""
