-- Version 1: the first.
CREATE SCHEMA belated;

-- The versions that were applied, and the oldest one whose programs can work with each.
CREATE TABLE belated.migration (
    version integer PRIMARY KEY,
    oldest  integer NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE belated.bandit (
    number     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    partitions integer NOT NULL,
    identity   text -- JSON, as the bandit wrote it
);

-- One row for each partition, never changed: whoever appends to the partition locks it.
CREATE TABLE belated.partition (
    bandit    integer NOT NULL REFERENCES belated.bandit,
    partition smallint NOT NULL,
    PRIMARY KEY (bandit, partition)
);

-- The mark recognises an event that is sent again: half the key of its id, then 8 bytes of a hash
-- of the event. Ids begin with the time, so that new marks fall on pages that are in memory.
-- The check is the CRC-32 of the event, with the place and the stamp mixed in.
CREATE TABLE belated.record (
    position  bigint NOT NULL,
    recorded  bigint NOT NULL, -- microseconds since 1970
    "check"   bigint NOT NULL,
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    mark      bytea NOT NULL,
    event     bytea NOT NULL,
    PRIMARY KEY (bandit, partition, position),
    CONSTRAINT record_is_new UNIQUE (bandit, partition, mark)
);

-- For people: the same with names and times.
CREATE VIEW belated.records AS
SELECT bandit.name AS bandit,
       record.partition,
       record.position,
       timestamptz 'epoch' + record.recorded * interval '1 microsecond' AS recorded,
       record.event
FROM belated.record JOIN belated.bandit ON bandit.number = record.bandit;

-- One row for each partition; without a seal there is no snapshot yet. The epoch counts owners.
CREATE TABLE belated.snapshot (
    bandit      integer NOT NULL REFERENCES belated.bandit,
    partition   smallint NOT NULL,
    epoch       bigint NOT NULL DEFAULT 0,
    position    bigint,
    fingerprint text,
    seal        bytea,
    PRIMARY KEY (bandit, partition)
);

CREATE TABLE belated.piece (
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    name      text NOT NULL,
    checksum  bytea NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (bandit, partition, name),
    FOREIGN KEY (bandit, partition) REFERENCES belated.snapshot
);

-- Append events to partitions of one bandit; gives the position of each, in their order.
--
-- A reader goes on from the last position it has seen, so a position must never become visible
-- after a greater one. An identity column does not do that: numbers are handed out before the
-- commit, and the later number can be committed first. Here the partition is locked first, and the
-- lock is let go after the commit; so positions have no gaps, and their order is that of commits.
-- What is read after the lock must be read in a statement of its own: a statement sees the table
-- as it was when the statement began, which is before it waited.
--
-- An event that is there already keeps its place: to send it again is safe. Stamps are those of
-- the server's clock, or those given, and never decrease within a partition.
CREATE FUNCTION belated.append(
    bandit_number integer,
    partitions    smallint[],
    marks         bytea[],
    crcs          bigint[],
    events        bytea[],
    stamps        bigint[] -- NULL for the clock
) RETURNS bigint[] LANGUAGE plpgsql
-- Made while the table is small, the plan must still do when it is large; and to make it anew for
-- every call would take longer than all the rest.
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    clock     bigint;
    positions bigint[];
    target    smallint := partitions[1];
    base      bigint;
    moment    bigint;
BEGIN
    -- In one order everywhere, so that two that lock several cannot wait for each other.
    PERFORM FROM belated.partition AS home
    WHERE home.bandit = bandit_number AND home.partition = ANY (partitions)
    ORDER BY home.partition FOR UPDATE;

    clock := extract(epoch FROM clock_timestamp()) * 1000000;

    -- Nearly always all are new and of one partition: then a plain INSERT does, and is quicker.
    -- Where the index knows one of them, it is undone, and what follows sees which.
    IF stamps IS NULL AND target = ALL (partitions) THEN
        BEGIN
            SELECT record.position, record.recorded INTO base, moment FROM belated.record
            WHERE record.bandit = bandit_number AND record.partition = target
            ORDER BY record.position DESC LIMIT 1;
            base := coalesce(base, 0);
            moment := greatest(moment, clock);

            INSERT INTO belated.record (position, recorded, "check", bandit, partition, mark, event)
            SELECT base + n, moment, crc # (base + n) # moment # (target::bigint << 40),
                   bandit_number, target, mark, event
            FROM unnest(marks, crcs, events) WITH ORDINALITY AS one (mark, crc, event, n);

            RETURN ARRAY(SELECT generate_series(base + 1, base + cardinality(marks)));
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;

    WITH given AS MATERIALIZED (
        SELECT one.*,
               (SELECT record.position FROM belated.record
                WHERE record.bandit = bandit_number AND record.partition = one.partition
                  AND record.mark = one.mark AND record.event = one.event) AS known
        FROM unnest(partitions, marks, crcs, events, stamps)
             WITH ORDINALITY AS one (partition, mark, crc, event, stamp, n)
    ), tail AS MATERIALIZED (
        SELECT home.partition,
               coalesce(last.position, 0) AS position, coalesce(last.recorded, 0) AS recorded
        FROM (SELECT DISTINCT given.partition FROM given) AS home
        LEFT JOIN LATERAL (
            SELECT record.position, record.recorded FROM belated.record
            WHERE record.bandit = bandit_number AND record.partition = home.partition
            ORDER BY record.position DESC LIMIT 1
        ) AS last ON true
    ), placed AS MATERIALIZED (
        SELECT given.*,
               coalesce(
                   given.known,
                   tail.position + count(*) FILTER (WHERE given.known IS NULL) OVER so_far
               ) AS position,
               greatest(
                   tail.recorded,
                   max(coalesce(given.stamp, clock)) FILTER (WHERE given.known IS NULL) OVER so_far
               ) AS recorded
        FROM given JOIN tail USING (partition)
        WINDOW so_far AS (PARTITION BY given.partition ORDER BY given.n)
    ), written AS (
        INSERT INTO belated.record (position, recorded, "check", bandit, partition, mark, event)
        SELECT position, recorded,
               crc # position # recorded # (partition::bigint << 40),
               bandit_number, partition, mark, event
        FROM placed WHERE known IS NULL
    )
    SELECT array_agg(placed.position ORDER BY n) INTO positions FROM placed;
    RETURN positions;
END
$$;

INSERT INTO belated.migration (version, oldest) VALUES (1, 1);
