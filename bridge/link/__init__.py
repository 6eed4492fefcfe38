"""The node link: a remote `Target` made of a local one, over a WebSocket.

In the order a batch travels: `node_target` (the sending end's port), `sender` (its state machine),
`batch_frames` and `frames` (batch to bytes and back, within `limits`), `driver` (the loop that both ends
share), `socket` (aiohttp), `receiver` (the receiving end's state machine), `link_server` (its work on the
local target), `correspondent` (notices between the extensions of both ends). Everything but driver, socket,
node_target and link_server is pure: frames and times in, frames and events out. The wire format is written
down in `docs/wire-protocol.md`.
"""
