-- The journal's tables, version 8. `bridge.journal.sqlite.database` says how earlier ones become it.
-- `crc` is the CRC-32 of the row's other columns (`bridge.journal.values.row_checksums`): SQLite does not notice that
-- bytes inside a row have changed on the disk.

-- schema, node-id, incarnation, log-session
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- One sequence for the whole journal: never derived, never reset.
CREATE TABLE sequence (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    next INTEGER NOT NULL,
    crc  INTEGER NOT NULL
);

-- One row an opening: how copies and restored backups are told apart.
CREATE TABLE runs (
    run       TEXT PRIMARY KEY,
    first     INTEGER NOT NULL,     -- the sequence at this opening
    opened_ms INTEGER NOT NULL      -- wall clock, and above that of every earlier run with the same `first`
) WITHOUT ROWID;

CREATE TABLE addresses (
    address_id          INTEGER PRIMARY KEY,
    name                TEXT NOT NULL UNIQUE,
    routing_type        TEXT NOT NULL,
    first               INTEGER NOT NULL,   -- where its stream begins: part of the stream's identity
    next                INTEGER NOT NULL,   -- one beyond its last message
    trimmed             INTEGER NOT NULL,   -- everything below was needed by nobody and is gone
    total               INTEGER NOT NULL,   -- messages ever stored
    messages            INTEGER NOT NULL,   -- messages stored now
    bytes               INTEGER NOT NULL,   -- block bytes stored now
    logged              INTEGER NOT NULL,   -- upto of the last delivery-log line of client sends
    ids_accepted        INTEGER NOT NULL,   -- running number of the next duplicate ID
    id_cache_capacity   INTEGER NOT NULL,   -- of the cache when this row was written
    id_cache_size       INTEGER,            -- set by an operator; NULL: the settings'
    id_cache_configured INTEGER,            -- the settings' value when the operator set it
    auto_created        INTEGER NOT NULL DEFAULT 0,
    crc                 INTEGER NOT NULL
);

-- Messages that arrived in one commit for one address; `first` is a sequence number.
CREATE TABLE blocks (
    first      INTEGER PRIMARY KEY,
    address_id INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,    -- the address's `total` before it
    size       INTEGER NOT NULL,    -- bytes of the file that it takes, about
    largest    INTEGER NOT NULL,    -- bytes of its largest message
    checksum   INTEGER NOT NULL,    -- CRC-32 of its last message
    stored_ms  INTEGER NOT NULL,
    buried     INTEGER NOT NULL DEFAULT 1,  -- 1, 2: dead letters, of this node's bridges and others' (`Came`)
    ids        BLOB,                -- msgpack [[index, id]] of producers' IDs; NULL: none
    origins    BLOB,                -- msgpack [[stream, first, last]]; NULL: first stored here
    hops       BLOB,                -- msgpack [[count, hops]] of all messages; NULL: none came over a bridge
    routes     BLOB,                -- the queues that each message is addressed to (`values.routes`); NULL: every one
    body_id    INTEGER,             -- where its messages are, if other logs got the same; NULL: in `body`
    large_id   INTEGER,             -- the body of its one message is in `chunks`; NULL: bodies are in messages
    crc        INTEGER NOT NULL,    -- before `body`, whose pages are not read for it
    body       BLOB NOT NULL        -- msgpack array of messages; empty with a `body_id`
);
-- Everything that is asked about blocks without their messages, so that no body's page is read for it.
CREATE INDEX blocks_by_address ON blocks (address_id, first, count, size, ordinal, largest);
-- Empty where no address has a queue with a filter.
CREATE INDEX blocks_with_routes ON blocks (address_id, first) WHERE routes IS NOT NULL;
-- Whether a body is needed. Empty where no message is stored for several nodes.
CREATE INDEX blocks_by_body ON blocks (body_id) WHERE body_id IS NOT NULL;

-- Messages that several logs got in one commit, stored once. A body goes with the last of its blocks.
CREATE TABLE bodies (
    body_id INTEGER PRIMARY KEY,    -- the first of its blocks: positions are never used again
    crc     INTEGER NOT NULL,
    body    BLOB NOT NULL
);

-- Bodies of large messages, in pieces. A body goes with the last block that has its `large_id`.
CREATE TABLE chunks (
    chunk_id INTEGER PRIMARY KEY,   -- large_id * 65536 + the chunk's number, from 0
    crc      INTEGER NOT NULL,
    bytes    BLOB NOT NULL
);
CREATE INDEX blocks_by_large ON blocks (large_id) WHERE large_id IS NOT NULL;
-- Large bodies that no block has: they are on their way in, or on their way out. None of them outlives an opening.
CREATE TABLE loose_bodies (
    large_id INTEGER PRIMARY KEY
);

CREATE TABLE queues (
    queue_id   INTEGER PRIMARY KEY,
    address_id INTEGER NOT NULL,
    name       TEXT NOT NULL,
    bridge     TEXT,                -- the bridge it belongs to; NULL: readers'
    next       INTEGER NOT NULL,    -- everything below is settled
    cursor     BLOB,                -- msgpack of leases and of what is settled beyond next; NULL: neither
    filter     TEXT NOT NULL DEFAULT '',    -- the condition on the messages that arrive; '': all
    messages   INTEGER,             -- addressed to it and not settled; NULL: all stored beyond next and cursor
    auto_created INTEGER NOT NULL DEFAULT 0,
    version    INTEGER NOT NULL,    -- how often this row was written (`journal.identity` has the newest)
    crc        INTEGER NOT NULL,
    UNIQUE (address_id, name)
);

-- As a target: what this journal covers of each bridge's streams (design rule 1). `bridge.journal.rules.owners` says
-- who may move it: a column below has its old name, for SQLite stores a statement with its comments.
CREATE TABLE positions (
    bridge   TEXT NOT NULL,
    stream   TEXT NOT NULL,
    next     INTEGER,               -- NULL: opened, nothing covered yet
    run      TEXT NOT NULL,         -- the sender's run and the checksum of the message at next - 1
    checksum INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,      -- issued at each opening; only the newest may deliver
    moved_to TEXT NOT NULL DEFAULT '',  -- the bridge that adopted it (`previous-name`); '': none has
    principal TEXT NOT NULL DEFAULT '', -- who may move it (`bridge.journal.owners`); '': the first that comes
    node     TEXT NOT NULL DEFAULT '',  -- and from which node; '': from any
    crc      INTEGER NOT NULL,
    PRIMARY KEY (bridge, stream)
) WITHOUT ROWID;

-- As a source: what the target's word confirmed, and who that target is.
CREATE TABLE settled (
    bridge   TEXT NOT NULL,
    stream   TEXT NOT NULL,
    upto     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    store    TEXT NOT NULL,
    stays    TEXT NOT NULL DEFAULT '',  -- what other stores confirmed (`bridge.relay.stays`), JSON; '': none did
    crc      INTEGER NOT NULL,
    PRIMARY KEY (bridge, stream)
) WITHOUT ROWID;

-- Duplicate IDs in the order of their acceptance; `first` is a running number within the address.
CREATE TABLE ids (
    address_id INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    stored_ms  INTEGER NOT NULL,
    packed     BLOB NOT NULL,       -- msgpack array of bytes
    crc        INTEGER NOT NULL,
    PRIMARY KEY (address_id, first)
);

-- Delivery-log lines, written in the transaction they speak of, deleted once their segment is on disk.
CREATE TABLE outbox (
    line_id INTEGER PRIMARY KEY AUTOINCREMENT,
    line    BLOB NOT NULL
);

-- Messages that could not be read any more, and that the operator has passed over (`bridge.journal.sqlite.repair`).
CREATE TABLE lost (
    address_id INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    upto       INTEGER NOT NULL,    -- one beyond the last position at which one of them may have been
    messages   INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,    -- the address's `total` before them
    lost_ms    INTEGER NOT NULL,
    PRIMARY KEY (address_id, first)
) WITHOUT ROWID;
