-- The tables of the journals, version 11, for a database that has none yet.

CREATE SCHEMA belated;

-- The versions that were applied, and the oldest one whose programs can work with each.
CREATE TABLE belated.migration (
    version integer PRIMARY KEY,
    oldest  integer NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

-- One row for each partition, never changed: whoever appends to the partition locks it. An append
-- that cannot lock each partition it writes to fails, so every record has a bandit. A foreign key
-- would guarantee the same, but it is checked for each row and doubles the time of an INSERT.
-- Bandits are registered in cells, with their numbers.
CREATE TABLE belated.partition (
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    PRIMARY KEY (bandit, partition)
);

-- The mark recognises an event that is sent again, and finds the records of an id: 8 bytes of the key
-- of the id, 8 of a hash of it, whether it is a decision, then 8 bytes of a hash of the event. Ids
-- begin with the time, so that new marks fall on pages that are in memory. Two ids that share the
-- hash cannot be found: that takes 2^64 trials for each.
-- The check is the CRC-32 of the event, with the place and the stamp mixed in: it finds what was
-- damaged. The digest is a BLAKE2b of the event: readers chain these, and find what was forged.
CREATE TABLE belated.record (
    position  bigint NOT NULL,
    recorded  bigint NOT NULL, -- microseconds since 1970
    "check"   bigint NOT NULL,
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    mark      bytea NOT NULL,
    digest    bytea NOT NULL,
    event     bytea NOT NULL,
    PRIMARY KEY (bandit, partition, position),
    CONSTRAINT record_is_new UNIQUE (bandit, partition, mark)
);

-- What decisions were chosen from, beside their records: no learner reads it.
CREATE TABLE belated.request (
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    position  bigint NOT NULL,
    request   bytea NOT NULL,
    PRIMARY KEY (bandit, partition, position)
);

-- Append events to partitions of any bandits, in one commit; gives the position of each, in their
-- order: below zero where the event was there already.
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
--
-- Of ids that callers chose, the beginnings of the marks of decisions may be given: where one of
-- them has a decision already, nothing is written, and the answer is NULL. The client then looks it
-- up.
--
-- Whoever knows the last record gives its digest and stamp. If that is the last one still, the
-- stamp of the events follows their positions: then nothing has to be read back.
CREATE FUNCTION belated.append(
    bandits    integer[],
    partitions smallint[],
    marks      bytea[],
    crcs       bigint[],
    digests    bytea[],
    events     bytea[],
    stamps     bigint[], -- NULL for the clock
    owners     integer[], -- the bandits of these marks; NULL for none
    homes      smallint[], -- and their partitions
    decided    bytea[],
    kept       bigint[], -- which of the events have requests, from 1 on; NULL for none
    requests   bytea[],
    behind     bytea -- the last record that is known; NULL for none
) RETURNS bigint[] LANGUAGE plpgsql
-- Made while the table is small, the plan must still do when it is large; and to make it anew for
-- every call would take longer than all the rest. A mark is looked up in the index of marks, even
-- before the table was ever analysed: ORDER BY mark says so, where nothing may be sorted. What is
-- discouraged so looks expensive where it cannot be avoided, and nothing is worth compiling for.
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    clock     bigint;
    positions bigint[];
    whose     integer := bandits[1];
    target    smallint := partitions[1];
    alone     boolean := whose = ALL (bandits) AND target = ALL (partitions);
    base      bigint;
    moment    bigint;
    follows   boolean;
    wanted    integer := least(1, cardinality(bandits));
    locked    integer;
BEGIN
    -- In one order everywhere, so that two that lock several cannot wait for each other.
    IF alone THEN
        PERFORM FROM belated.partition AS home
        WHERE home.bandit = whose AND home.partition = target FOR UPDATE;
    ELSE
        wanted := count(DISTINCT (bandit, partition)) FROM unnest(bandits, partitions)
                  AS one (bandit, partition);
        PERFORM FROM (
            SELECT DISTINCT bandit, partition FROM unnest(bandits, partitions)
            AS one (bandit, partition)
        ) AS wanted
        JOIN belated.partition AS home USING (bandit, partition)
        ORDER BY home.bandit, home.partition FOR UPDATE OF home;
    END IF;
    GET DIAGNOSTICS locked = ROW_COUNT;
    IF locked <> wanted THEN
        RAISE foreign_key_violation USING MESSAGE = 'a partition to append to does not exist';
    END IF;

    -- Whoever has locked the partition before has committed: a decision that is not found here now
    -- is not there. The third byte of an event is its kind, and 1 is a decision.
    IF decided IS NOT NULL THEN
        PERFORM FROM unnest(owners, homes, decided) AS one (owner, home, mark)
        CROSS JOIN LATERAL (
            SELECT FROM belated.record
            WHERE record.bandit = one.owner AND record.partition = one.home
              AND record.mark >= one.mark AND record.mark < one.mark || '\xffffffffffffffffff'
              AND get_byte(record.event, 2) = 1
            ORDER BY record.mark LIMIT 1
        ) AS known;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;

    clock := coalesce(stamps[1], extract(epoch FROM clock_timestamp()) * 1000000);

    -- Nearly always all are new: then a plain INSERT does, and is quicker; most of all where they
    -- are of one partition. Where the index knows one of them, it is undone, and what follows sees
    -- which.
    IF stamps IS NULL OR clock = ALL (stamps) THEN
        BEGIN
            IF alone THEN
                SELECT record.position, record.recorded, behind = record.digest || int8send(recorded)
                INTO base, moment, follows FROM belated.record
                WHERE record.bandit = whose AND record.partition = target
                ORDER BY record.position DESC LIMIT 1;
                base := coalesce(base, 0);
                moment := greatest(moment, clock);

                INSERT INTO belated.record
                    (position, recorded, "check", bandit, partition, mark, digest, event)
                SELECT base + n, moment, crc # (base + n) # moment # (target::bigint << 40),
                       whose, target, mark, digest, event
                FROM unnest(marks, crcs, digests, events)
                     WITH ORDINALITY AS one (mark, crc, digest, event, n);

                IF kept IS NOT NULL THEN
                    INSERT INTO belated.request (bandit, partition, position, request)
                    SELECT whose, target, base + n, request
                    FROM unnest(kept, requests) AS one (n, request);
                END IF;
                positions := ARRAY(SELECT generate_series(base + 1, base + cardinality(marks)));
                RETURN CASE WHEN follows THEN positions || moment ELSE positions END;
            END IF;

            WITH tail AS MATERIALIZED (
                SELECT home.bandit, home.partition, coalesce(last.position, 0) AS position,
                       greatest(last.recorded, clock) AS recorded
                FROM (
                    SELECT DISTINCT bandit, partition FROM unnest(bandits, partitions)
                    AS one (bandit, partition)
                ) AS home
                LEFT JOIN LATERAL (
                    SELECT record.position, record.recorded FROM belated.record
                    WHERE record.bandit = home.bandit AND record.partition = home.partition
                    ORDER BY record.position DESC LIMIT 1
                ) AS last ON true
            ), placed AS MATERIALIZED (
                SELECT one.*, tail.recorded,
                       tail.position
                           + count(*) OVER (PARTITION BY one.bandit, one.partition ORDER BY one.n)
                           AS position
                FROM unnest(bandits, partitions, marks, crcs, digests, events)
                     WITH ORDINALITY AS one (bandit, partition, mark, crc, digest, event, n)
                JOIN tail USING (bandit, partition)
            ), written AS (
                INSERT INTO belated.record
                    (position, recorded, "check", bandit, partition, mark, digest, event)
                SELECT position, recorded,
                       crc # position # recorded # (partition::bigint << 40),
                       bandit, partition, mark, digest, event
                FROM placed
            )
            SELECT array_agg(placed.position ORDER BY n) INTO positions FROM placed;
            IF kept IS NOT NULL THEN
                INSERT INTO belated.request (bandit, partition, position, request)
                SELECT bandits[n], partitions[n], positions[n], request
                FROM unnest(kept, requests) AS one (n, request);
            END IF;
            RETURN positions;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;

    WITH given AS MATERIALIZED (
        SELECT one.*,
               (SELECT record.position FROM belated.record
                WHERE record.bandit = one.bandit AND record.partition = one.partition
                  AND record.mark >= one.mark AND record.mark <= one.mark
                  AND record.digest = one.digest -- that of an event that was overwritten, too
                ORDER BY record.mark LIMIT 1) AS known
        FROM unnest(bandits, partitions, marks, crcs, digests, events, stamps)
             WITH ORDINALITY AS one (bandit, partition, mark, crc, digest, event, stamp, n)
    ), tail AS MATERIALIZED (
        SELECT home.bandit, home.partition,
               coalesce(last.position, 0) AS position, coalesce(last.recorded, 0) AS recorded
        FROM (SELECT DISTINCT given.bandit, given.partition FROM given) AS home
        LEFT JOIN LATERAL (
            SELECT record.position, record.recorded FROM belated.record
            WHERE record.bandit = home.bandit AND record.partition = home.partition
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
        FROM given JOIN tail USING (bandit, partition)
        WINDOW so_far AS (PARTITION BY given.bandit, given.partition ORDER BY given.n)
    ), written AS (
        INSERT INTO belated.record
            (position, recorded, "check", bandit, partition, mark, digest, event)
        SELECT position, recorded,
               crc # position # recorded # (partition::bigint << 40),
               bandit, partition, mark, digest, event
        FROM placed WHERE known IS NULL
    )
    SELECT array_agg(
        CASE WHEN placed.known IS NULL THEN placed.position ELSE -placed.position END ORDER BY n
    ) INTO positions FROM placed;
    IF kept IS NOT NULL THEN
        INSERT INTO belated.request (bandit, partition, position, request)
        SELECT bandits[n], partitions[n], abs(positions[n]), request
        FROM unnest(kept, requests) AS one (n, request)
        ON CONFLICT DO NOTHING; -- of an event that was there already
    END IF;
    RETURN positions;
END
$$;

-- The records of some ids of a bandit, by their marks: all decisions, which come first, and the first
-- other records of each, as many as wanted.
CREATE FUNCTION belated.records_of(
    bandit_number integer,
    partitions    smallint[],
    first         bytea[],
    decided       bytea[], -- beyond the decisions
    beyond        bytea[],
    others        integer -- NULL for all
) RETURNS TABLE (
    partition smallint, "position" bigint, recorded bigint, "check" bigint, digest bytea, event bytea
)
LANGUAGE sql STABLE
-- As above: by the index of marks, whatever is known of the table.
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
    SELECT found.*
    FROM unnest(partitions, first, decided, beyond) AS wanted (partition, first, decided, beyond)
    CROSS JOIN LATERAL (
        SELECT record.partition, record.position, record.recorded, record."check", record.digest,
               record.event
        FROM belated.record
        WHERE record.bandit = bandit_number AND record.partition = wanted.partition
          AND record.mark >= wanted.first AND record.mark < wanted.decided
        ORDER BY record.mark
    ) AS found
    UNION ALL
    SELECT found.*
    FROM unnest(partitions, decided, beyond) AS wanted (partition, decided, beyond)
    CROSS JOIN LATERAL (
        SELECT told.* FROM (
            SELECT record.partition, record.position, record.recorded, record."check",
                   record.digest, record.event
            FROM belated.record
            WHERE others IS DISTINCT FROM 0
              AND record.bandit = bandit_number AND record.partition = wanted.partition
              AND record.mark >= wanted.decided AND record.mark < wanted.beyond
            ORDER BY record.mark OFFSET 0
        ) AS told
        ORDER BY told.position LIMIT others
    ) AS found
$$;

-- Small named values with versions: whatever is stored beside the records.
CREATE TABLE belated.cell (
    name    text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    written bigint NOT NULL, -- microseconds since 1970, by the server's clock
    value   bytea NOT NULL
);

-- Change cells if others have the versions that are expected, 0 for one that must not exist; gives
-- the time, and minus the time if nothing was changed.
--
-- Cells that exist are locked first, in one order everywhere. What must not exist cannot be locked:
-- it is inserted, so that another who inserts it waits, and removed again.
CREATE FUNCTION belated.transact(
    expected text[],
    versions bigint[],
    puts     text[],
    contents bytea[],
    deletes  text[]
) RETURNS bigint LANGUAGE plpgsql
SET jit = off
AS $$
DECLARE
    touched text[] := expected || puts || deletes;
    absent  text[] := ARRAY(
        SELECT name FROM unnest(expected, versions) AS one (name, version)
        WHERE version = 0 AND name <> ALL (puts) ORDER BY name COLLATE "C"
    );
    present text[];
    held    bigint[];
    known   text[];
    tries   integer := 0;
    clock   bigint;
BEGIN
    LOOP
        BEGIN
            -- What is not among the rows that are locked here counts as absent. If it is inserted
            -- meanwhile, the INSERT below fails, and all begins anew.
            SELECT coalesce(array_agg(name), '{}'), coalesce(array_agg(version), '{}')
            INTO present, held FROM (
                SELECT name, version FROM belated.cell
                WHERE name = ANY (touched) ORDER BY name FOR UPDATE
            ) AS locked;
            clock := extract(epoch FROM clock_timestamp()) * 1000000;
            PERFORM FROM belated.cell WHERE name = ANY (puts) AND name <> ALL (present);
            IF FOUND THEN -- it was just inserted, or this role may not lock it
                tries := tries + 1;
                IF tries > 20 THEN
                    RAISE insufficient_privilege USING MESSAGE = 'this role may not change a cell';
                END IF;
                CONTINUE;
            END IF;
            PERFORM FROM unnest(expected, versions) AS one (name, version)
            LEFT JOIN unnest(present, held) AS locked (name, version) USING (name)
            WHERE coalesce(locked.version, 0) <> one.version;
            IF FOUND THEN
                RETURN -clock;
            END IF;
            known := ARRAY(SELECT unnest(present) INTERSECT SELECT unnest(puts));
            IF known <> '{}' THEN
                UPDATE belated.cell
                SET version = cell.version + 1, written = clock, value = one.content
                FROM unnest(puts, contents) AS one (name, content)
                WHERE cell.name = one.name;
            END IF;
            INSERT INTO belated.cell (name, version, written, value)
            SELECT one.name, 1, clock, coalesce(one.content, '')
            FROM unnest(puts || absent, contents) AS one (name, content)
            WHERE one.name <> ALL (known) ORDER BY one.name COLLATE "C";
            IF absent || deletes <> '{}' THEN
                DELETE FROM belated.cell WHERE name = ANY (absent || deletes);
            END IF;
            RETURN clock;
        EXCEPTION WHEN unique_violation THEN
            NULL; -- another has inserted one of them, and has committed: look again
        END;
    END LOOP;
END
$$;

-- For people: the records with names and times.
CREATE VIEW belated.records AS
SELECT bandit.name AS bandit,
       record.partition,
       record.position,
       timestamptz 'epoch' + record.recorded * interval '1 microsecond' AS recorded,
       record.event
FROM belated.record
JOIN (
    SELECT convert_from(value, 'UTF8')::json ->> 'name' AS name,
           (convert_from(value, 'UTF8')::json ->> 'number')::integer AS number
    FROM belated.cell WHERE name >= 'bandit/' AND name < 'bandit0'
) AS bandit ON bandit.number = record.bandit;

INSERT INTO belated.migration (version, oldest) VALUES (11, 11);
