"""Every limit of the node link: of its fields, its frames, and the work that may be under way."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

#: The protocol's version, and the WebSocket subprotocol that names it (RFC 6455 section 1.9).
VERSION: Final = 1
SUBPROTOCOL: Final = "core-bridge.1"
#: Path at which a node listens for links.
PATH: Final = "/v1/link"

#: Positions go up to 2^50 (design section 1).
POSITION_MOST: Final = 2**50
#: Counts, sizes and numbers of frames; times in ms since the epoch.
NUMBER_MOST: Final = 2**53
CHECKSUM_MOST: Final = 2**32 - 1
#: Characters of a node's, bridge's or store's name, and of a run.
NAME_MOST: Final = 255
#: Characters of a run: a name, or the positions that have a dead letter (`bridge.relay.dead_letters`), as
#: runs.
RUN_MOST: Final = 16 * KIB
#: Characters of an address.
ADDRESS_MOST: Final = 249
#: Characters of a stream identity: an incarnation or cluster id, an address, a number, colons.
STREAM_MOST: Final = 1 * KIB
#: Entries of HELLO's `path`, which is not used.
PATH_MOST: Final = 64
#: Entries of WELCOME's `inherited`.
INHERITED_MOST: Final = 64
#: Entries of OPENED's `bodies`: a stream has one large body on its way at a time, and few that wait.
BODIES_MOST: Final = 16
#: Characters of a receipt's reason and of a close's detail; longer ones are cut short.
TEXT_MOST: Final = 1 * KIB
#: Characters of a close's code.
CODE_MOST: Final = 64

#: Messages of a batch, and their producers' IDs: the memory of a block's checks depends on them.
MESSAGES_MOST: Final = 2**18
#: Entries of each other list of a batch (runs, refused, origins, hops); checked before the list is made.
ENTRIES_MOST: Final = 2**17
#: Runs of messages for the same queues in a batch, and names of one run.
QUEUE_RUNS_MOST: Final = 1_000
QUEUE_NAMES_MOST: Final = 1_000
#: Bytes that one entry of a list takes in memory, with its own parts; some 130 were measured.
ENTRY_BYTES: Final = 160
#: The smallest message in bytes: an array of a null body, and nothing else.
MESSAGE_LEAST: Final = 2

#: Streams that one link may have open.
STREAMS_MOST: Final = 10_000
#: Batches sent and not yet answered, whatever their size: coverage alone costs no credit.
UNANSWERED_MOST: Final = 4_096
#: Deliveries that the receiving target is given before the first has returned, so that its group
#: commit has something to group.
DELIVERIES_MOST: Final = 16
#: OPENs of one link that have come and are not answered. At the limit nothing is read from the link.
OPENS_MOST: Final = 1_024
#: Bytes of batches that have come and are not answered, their lists as they are in memory. At the limit
#: nothing is read from the link, either.
BUFFERED_MOST: Final = 16 * MIB
#: Answers that the other end has not read, beyond those that the connection takes. At the limit nothing is
#: read from the link, either.
ANSWERS_MOST: Final = 256
#: Bytes of a NOTICE's body: with its frame it is below `ANSWER_MOST`.
NOTICE_MOST: Final = 48 * KIB
#: NOTICEs of an end that wait to leave. At the limit its extension has to say it again later.
NOTICES_MOST: Final = 64
#: The lowest rate at which the bytes of a frame, or of a request's body, have to come: bytes a second, over
#: `connection-ttl` or `call-timeout`. A line of 16 kbit/s carries 2,000; with cuts of 30 s in each minute
#: 1,000, and some 300 where TCP's retransmission timer has doubled through the cut and leaves 9 s of the
#: minute.
LEAST_RATE: Final = 100
#: The longest time over which that rate of a frame is measured, ms: also where `connection-ttl` is longer,
#: or -1.
PACE_MOST_MS: Final = 600_000
#: A deadline that is never reached, ms: the meaning of -1.
NEVER_MS: Final = 2**53

#: Credit of a link in bytes of batches, where its sender's window is not larger: the default
#: `confirmation-window-size`. A larger window gets as much, up to `max-link-size`.
INITIAL_CREDIT: Final = 10 * MIB

#: A receiver takes frames of at least this, however small its `max-message-size`: batches hold many.
LEAST_FRAME: Final = 16 * MIB
#: Bytes beside the bodies: keys, headers, producers' IDs, runs, origins, the frame's fields.
FRAME_SLACK: Final = 4 * MIB
#: Names of compressions in HELLO.
COMPRESSIONS_MOST: Final = 8
#: Largest window of a compressed frame, in bytes: the one that RFC 8878 asks every decoder to support.
WINDOW_MOST: Final = 8 * MIB
#: Blocks of a compressed frame: so many, and one for each `BLOCK_MEAN_LEAST` bytes of its content.
BLOCKS_LEAST: Final = 16
BLOCK_MEAN_LEAST: Final = 1 * KIB
#: Largest frame that a receiver sends, in bytes: its frames are small.
ANSWER_MOST: Final = 64 * KIB


def deadline_ms(now_ms: int, timeout_ms: int) -> int:
    """The time `timeout_ms` from now; -1 is never."""
    return NEVER_MS if timeout_ms < 0 else now_ms + timeout_ms


def largest_frame(max_message_size: int) -> int:
    """The largest frame in bytes that a node takes whose largest body in a BATCH has so many bytes."""
    return max(max_message_size, LEAST_FRAME) + FRAME_SLACK
