"""The bridge: stores what clients send, and relays it to targets that reject every replay.

The path of a message through the packages: `http` takes it, `journal` stores it, a journal source reads it,
`relay` moves it, `link` carries it, and the journal of the other node checks and stores it. `assembly` and
`node.wiring` are the only places that wire these together (docs/architecture.md).
"""
