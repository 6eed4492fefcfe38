"""Spark reconciles the delivery logs: finds what was lost, doubled, late or out of order (design section 7).

`session` starts Spark, `lines` reads the logs, `job` compares the sides, `tables` says what comes out.
On the way there: `lines` -> `events` (equal lines are one) -> `flows` (who is compared) -> `pieces` and
`sweep` (interval arithmetic over positions) -> `findings`; beside it `order`, `ids` and `times`.
Nothing here imports `bridge`: the line's format is the contract's.
"""
