-- The tables of a journal file, version 1. A file may hold the journals of several bandits.

CREATE TABLE bandit (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL,
    identity   TEXT -- JSON, as the bandit wrote it
);

-- One number for bandit, partition and position (12 bits of partition, 40 of position) makes
-- the table itself the index: a partition is one range of it. The check is a CRC-32 of the row.
CREATE TABLE record (
    place    INTEGER PRIMARY KEY,
    recorded INTEGER NOT NULL,
    "check"  INTEGER NOT NULL,
    event    BLOB NOT NULL
);

-- For people: the same with its numbers apart.
CREATE VIEW records AS
SELECT bandit.name AS bandit,
       place >> 40 & 4095 AS partition,
       place & 1099511627775 AS position,
       datetime(recorded / 1000000, 'unixepoch') AS recorded,
       event
FROM record JOIN bandit ON bandit.number = place >> 52;

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
