-- The tables of a journal file, version 3. A file may hold the journals of several bandits.

CREATE TABLE bandit (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL,
    identity   TEXT -- JSON, as the bandit wrote it
);

-- One number for bandit, partition and position (12 bits of partition, 40 of position) makes
-- the table itself the index: a partition is one range of it. The mark is the first 63 bits of the
-- key of the event's id, and negative for events without an id. The check is a CRC-32 of the row:
-- it finds what was damaged. The digest is a BLAKE2b of the event: readers chain these, and find
-- what was forged.
CREATE TABLE record (
    place    INTEGER PRIMARY KEY,
    recorded INTEGER NOT NULL,
    mark     INTEGER NOT NULL,
    "check"  INTEGER NOT NULL,
    digest   BLOB NOT NULL,
    event    BLOB NOT NULL
);

-- What decisions were chosen from, beside their records: no learner reads it.
CREATE TABLE request (
    place   INTEGER PRIMARY KEY,
    request BLOB NOT NULL
);

-- Finds the records of an id. SQLite adds the place to it, so those of one partition lie together.
CREATE INDEX record_by_mark ON record (mark);

-- For people: the same with its numbers apart.
CREATE VIEW records AS
SELECT bandit.name AS bandit,
       place >> 40 & 4095 AS partition,
       place & 1099511627775 AS position,
       datetime(recorded / 1000000, 'unixepoch') AS recorded,
       event
FROM record JOIN bandit ON bandit.number = place >> 52;

-- The epoch counts the owners of a partition, and fences those of before.
CREATE TABLE owner (
    bandit    INTEGER NOT NULL REFERENCES bandit,
    partition INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    PRIMARY KEY (bandit, partition)
);

CREATE TABLE snapshot (
    bandit      INTEGER NOT NULL REFERENCES bandit,
    partition   INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    seal        BLOB NOT NULL,
    PRIMARY KEY (bandit, partition)
);

CREATE TABLE piece (
    bandit    INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    name      TEXT NOT NULL,
    checksum  BLOB NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (bandit, partition, name)
);

-- What the records that were dropped came to: a snapshot that nothing can replace but a later one.
-- The pieces of a new one are written before it takes the place of the old.
CREATE TABLE base (
    bandit      INTEGER NOT NULL REFERENCES bandit,
    partition   INTEGER NOT NULL,
    position    INTEGER NOT NULL, -- of the last record that may be dropped
    recorded    INTEGER NOT NULL, -- its stamp
    fingerprint TEXT NOT NULL,
    seal        BLOB NOT NULL,
    PRIMARY KEY (bandit, partition)
);

CREATE TABLE base_piece (
    bandit    INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    name      TEXT NOT NULL,
    checksum  BLOB NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (bandit, partition, position, name)
);

-- For a service: who learns a bandit, and the model that the last one published.
-- The epoch counts holders of the lease, and fences those of before.
CREATE TABLE leader (
    bandit INTEGER PRIMARY KEY REFERENCES bandit,
    holder TEXT NOT NULL,
    epoch  INTEGER NOT NULL,
    until  INTEGER NOT NULL -- microseconds since 1970
);

-- The number counts publications: deciders ask for one beyond the last they have seen.
CREATE TABLE model (
    bandit INTEGER PRIMARY KEY REFERENCES bandit,
    number INTEGER NOT NULL,
    data   BLOB NOT NULL
);

-- For a service: the API keys. A key itself is nowhere, only its SHA-256. Rows stay when a key is
-- revoked, so that it can be said when.
CREATE TABLE key (
    id      TEXT PRIMARY KEY, -- the public part of the key
    name    TEXT NOT NULL,
    bandits TEXT NOT NULL, -- JSON, * for all
    scopes  TEXT NOT NULL, -- JSON
    rate    REAL, -- requests a second, NULL for any number
    hash    BLOB NOT NULL UNIQUE,
    created INTEGER NOT NULL, -- microseconds since 1970
    revoked INTEGER
);

-- Small named values with versions: whatever is stored beside the records.
CREATE TABLE cell (
    name    TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    written INTEGER NOT NULL, -- microseconds since 1970
    value   BLOB NOT NULL
);
