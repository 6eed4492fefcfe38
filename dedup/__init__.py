"""Pure duplicate detection, used alike by every end of a bridge.

`dedup.ids` says who a message is, `dedup.cache` whether its address has accepted that ID,
`dedup.coverage` whether its place in the stream was covered, `dedup.verdict` what a target answers.
"""
