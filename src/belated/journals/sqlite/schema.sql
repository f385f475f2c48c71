-- The tables of a journal file, version 4. A file may hold the journals of several bandits, each
-- registered in a cell.

-- `place` combines bandit, partition and position (12 bits of partition, 40 of position), so that
-- the table is its own index and each partition is a range of rows. `mark` identifies the event's id
-- (see `mark_of_key`), and is negative for events without an id. `check` is a CRC-32 of the row, which
-- reveals damage. `digest` is a BLAKE2b hash of the event. Readers chain the digests, which reveals
-- forgeries.
CREATE TABLE record (
    place    INTEGER PRIMARY KEY,
    recorded INTEGER NOT NULL,
    mark     INTEGER NOT NULL,
    "check"  INTEGER NOT NULL,
    digest   BLOB NOT NULL,
    event    BLOB NOT NULL
);

-- The requests of decisions, stored separately from the records, because learners do not read them.
CREATE TABLE request (
    place   INTEGER PRIMARY KEY,
    request BLOB NOT NULL
);

-- Finds the records of an id. SQLite appends `place` to each index entry, so the records of a
-- partition are adjacent.
CREATE INDEX record_by_mark ON record (mark);

-- Small named values with versions: everything that is stored besides records and requests.
CREATE TABLE cell (
    name    TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    written INTEGER NOT NULL, -- microseconds since 1970
    value   BLOB NOT NULL
);

-- A readable view of the records.
CREATE VIEW records AS
SELECT json_extract(CAST(cell.value AS TEXT), '$.name') AS bandit,
       place >> 40 & 4095 AS partition,
       place & 1099511627775 AS position,
       datetime(recorded / 1000000, 'unixepoch') AS recorded,
       event
FROM record JOIN cell ON cell.name >= 'bandit/' AND cell.name < 'bandit0'
    AND json_extract(CAST(cell.value AS TEXT), '$.number') = place >> 52;
