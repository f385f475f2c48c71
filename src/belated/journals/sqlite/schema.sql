-- The tables of a journal file, version 3. A file may hold the journals of several bandits, each
-- registered in a cell.

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

-- Small named values with versions: whatever is stored beside the records.
CREATE TABLE cell (
    name    TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    written INTEGER NOT NULL, -- microseconds since 1970
    value   BLOB NOT NULL
);

-- For people: the records with their numbers apart.
CREATE VIEW records AS
SELECT json_extract(CAST(cell.value AS TEXT), '$.name') AS bandit,
       place >> 40 & 4095 AS partition,
       place & 1099511627775 AS position,
       datetime(recorded / 1000000, 'unixepoch') AS recorded,
       event
FROM record JOIN cell ON cell.name >= 'bandit/' AND cell.name < 'bandit0'
    AND json_extract(CAST(cell.value AS TEXT), '$.number') = place >> 52;
