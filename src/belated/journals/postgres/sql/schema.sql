-- The tables of the journals, version 12, for a database that does not have them yet.

CREATE SCHEMA belated;

-- The applied versions, and the oldest version whose programs still work with each.
CREATE TABLE belated.migration (
    version integer PRIMARY KEY,
    oldest  integer NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

-- One row per partition, never changed: appends to the partition lock it. An append that cannot lock
-- all of its partitions fails, so every record has a bandit. A foreign key would guarantee the same,
-- but it is checked for each row and doubles the time of an INSERT.
-- Bandits are registered in cells, with their numbers.
CREATE TABLE belated.partition (
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    PRIMARY KEY (bandit, partition)
);

-- `mark` identifies duplicate events, and finds the records of an id: 8 bytes of the id's key, 8 of a
-- hash of it, a byte that marks decisions, then 8 bytes of a hash of the event. Ids begin with the
-- time, so new marks are on cached pages. Finding an id with the hash of another takes 2^64 trials.
-- `check` is the CRC-32 of the event, combined with its place and stamp, which reveals damage.
-- `digest` is a BLAKE2b hash of the event; readers chain the digests, which reveals forgeries.
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

-- The requests of decisions, stored separately from the records, because learners do not read them.
CREATE TABLE belated.request (
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    position  bigint NOT NULL,
    request   bytea NOT NULL,
    PRIMARY KEY (bandit, partition, position)
);

-- Append events to partitions of any bandits in one commit; return the position of each, in order,
-- negated if the event was stored already.
--
-- A reader continues from the last position it has seen, so a position must never become visible
-- after a greater one. An identity column does not guarantee this: numbers are assigned before the
-- commit, and the greater number can be committed first. Here the partition is locked until after
-- the commit, so positions have no gaps, and their order is that of commits. Tables must be read in
-- a separate statement after the lock: a statement sees the tables as of its start, before it waited.
--
-- A stored event keeps its position, so repeating an append is safe. Stamps are those of the server's
-- clock, or those passed, and never decrease within a partition.
--
-- For ids chosen by callers, the beginnings of the marks of decisions may be passed: if one of the ids
-- already has a decision, nothing is written, and the result is NULL. The client then looks up the
-- decision.
--
-- A caller that knows the last record passes its digest and stamp. If it is still the last record,
-- the stamp of the events follows their positions, and the caller need not read them back.
CREATE FUNCTION belated.append(
    bandits    integer[],
    partitions smallint[],
    marks      bytea[],
    crcs       bigint[],
    digests    bytea[],
    events     bytea[],
    stamps     bigint[], -- NULL for the server's clock
    owners     integer[], -- bandits of the marks in `decided`; NULL for none
    homes      smallint[], -- partitions of these marks
    decided    bytea[],
    kept       bigint[], -- indexes of events with requests, from 1 on; NULL for none
    requests   bytea[],
    behind     bytea -- the last record that the caller knows; NULL for none
) RETURNS bigint[] LANGUAGE plpgsql
-- A plan made while the table is small must also suit a large one, and planning every call would take
-- longer than everything else. With sorting disabled, ORDER BY mark makes the planner use the index
-- of marks, even before the table was analysed. The disabled methods inflate the estimated cost where
-- they are unavoidable, so JIT compilation is disabled, too.
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
    -- Always in the same order, to prevent deadlocks.
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

    -- Earlier holders of the lock have committed, so a decision that is not found here does not
    -- exist. The third byte of an event is its kind, and 1 is a decision.
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

    -- Nearly always all events are new: then a plain INSERT is faster, especially for a single
    -- partition. If the index contains one of them, the INSERT is rolled back, and the statement
    -- below finds out which.
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
                  AND record.digest = one.digest -- also matches an overwritten event
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
        ON CONFLICT DO NOTHING; -- the event was stored already
    END IF;
    RETURN positions;
END
$$;

-- Return records of some ids of a bandit, by their marks: all decisions, which come first, and up to
-- `others` other records of each id.
CREATE FUNCTION belated.records_of(
    bandit_number integer,
    partitions    smallint[],
    first         bytea[],
    decided       bytea[], -- upper bound of the decisions
    beyond        bytea[],
    others        integer -- NULL for all
) RETURNS TABLE (
    partition smallint, "position" bigint, recorded bigint, "check" bigint, digest bytea, event bytea
)
LANGUAGE sql STABLE
-- As above: always use the index of marks.
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

-- Small named values with versions: everything that is stored besides records and requests.
CREATE TABLE belated.cell (
    name    text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    written bigint NOT NULL, -- microseconds since 1970, by the server's clock
    value   bytea NOT NULL
);

-- Change cells if their versions are as expected (0 means that a cell must not exist). Return the time,
-- negated if nothing was changed.
--
-- Existing cells are locked first, always in the same order. Cells that must not exist cannot be
-- locked: they are inserted, so that concurrent inserts wait, and removed again.
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
            -- Rows that are not locked here count as absent. If one is inserted meanwhile, the
            -- INSERT below fails, and the loop is repeated.
            SELECT coalesce(array_agg(name), '{}'), coalesce(array_agg(version), '{}')
            INTO present, held FROM (
                SELECT name, version FROM belated.cell
                WHERE name = ANY (touched) ORDER BY name FOR UPDATE
            ) AS locked;
            clock := extract(epoch FROM clock_timestamp()) * 1000000;
            PERFORM FROM belated.cell WHERE name = ANY (puts) AND name <> ALL (present);
            IF FOUND THEN -- just inserted, or this role may not lock it
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
            NULL; -- a concurrent transaction has inserted one of them: retry
        END;
    END LOOP;
END
$$;

-- The outcomes of decisions, for other programs. Of two versions of an outcome, the greater is stored.
CREATE TABLE belated.outcome (
    bandit    integer NOT NULL,
    id        text COLLATE "C" NOT NULL,
    partition smallint NOT NULL,
    version   bigint NOT NULL,
    message   jsonb NOT NULL,
    PRIMARY KEY (bandit, id)
);

-- Finds the outcomes that have changed since a version.
CREATE INDEX outcome_by_version ON belated.outcome (bandit, partition, version);

-- The numbers of the bandits.
CREATE VIEW belated.bandits AS
SELECT convert_from(value, 'UTF8')::json ->> 'name' AS name,
       (convert_from(value, 'UTF8')::json ->> 'number')::integer AS number
FROM belated.cell WHERE name >= 'bandit/' AND name < 'bandit0';

-- A readable view of the records, with names and times.
CREATE VIEW belated.records AS
SELECT bandit.name AS bandit,
       record.partition,
       record.position,
       timestamptz 'epoch' + record.recorded * interval '1 microsecond' AS recorded,
       record.event
FROM belated.record
JOIN belated.bandits AS bandit ON bandit.number = record.bandit;

-- A readable view of the outcomes.
CREATE VIEW belated.outcomes AS
SELECT bandit.name AS bandit,
       outcome.partition,
       outcome.id,
       outcome.version,
       message ->> 'state' AS state,
       (message ->> 'at')::timestamptz AS at,
       (message ->> 'recorded')::timestamptz AS recorded,
       (message ->> 'effective')::timestamptz AS effective,
       message ->> 'subject' AS subject,
       message ->> 'action' AS action,
       (message ->> 'index')::integer AS index,
       (message ->> 'propensity')::float8 AS propensity,
       (message ->> 'overall')::float8 AS overall,
       (message ->> 'mean')::float8 AS mean,
       (message ->> 'model')::bigint AS model,
       message ->> 'source' AS source,
       coalesce(message ->> 'group', '') AS "group",
       message -> 'context' AS context,
       message -> 'record' AS record,
       (message ->> 'value')::float8 AS value,
       (message ->> 'rewarded')::timestamptz AS rewarded,
       (message ->> 'delay')::float8 AS delay,
       coalesce((message ->> 'late')::boolean, false) AS late,
       coalesce((message ->> 'conflict')::boolean, false) AS conflict
FROM belated.outcome
JOIN belated.bandits AS bandit ON bandit.number = outcome.bandit;

INSERT INTO belated.migration (version, oldest) VALUES (12, 12);
