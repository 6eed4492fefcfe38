"""The bridge: stores what clients send, and relays it to targets that reject every replay.

A message's way, in the order of the files: `http.acceptor` takes it, `journal` stores it, a
journal source reads it (`ports`), `pump` moves it, `link` carries it, and the journal of the
other node checks and stores it. `app` is the only place that wires these together.
"""
