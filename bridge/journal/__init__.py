"""The journal: a node's embedded store in SQLite, and the two ends that are made of it.

Read in the order that a message takes: `journal` (the event loop's side) hands `rules.commands` to the one
thread of `writer`; `rules.dispatch` has them decided and `rules.commit_group` collects what they change;
`writer.rows` stores it in one transaction. `sqlite` reads and keeps the file; `source` and `target` are the
ports, made of the `journal`.
"""
