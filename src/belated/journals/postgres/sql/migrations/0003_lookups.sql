-- Look-ups by marks that do well before the table was ever analysed, and appends to several
-- partitions that look nothing up.

CREATE OR REPLACE FUNCTION belated.append(
    bandit_number integer,
    partitions    smallint[],
    marks         bytea[],
    crcs          bigint[],
    events        bytea[],
    stamps        bigint[] -- NULL for the clock
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
    target    smallint := partitions[1];
    base      bigint;
    moment    bigint;
BEGIN
    -- In one order everywhere, so that two that lock several cannot wait for each other.
    PERFORM FROM belated.partition AS home
    WHERE home.bandit = bandit_number AND home.partition = ANY (partitions)
    ORDER BY home.partition FOR UPDATE;

    clock := extract(epoch FROM clock_timestamp()) * 1000000;

    -- Nearly always all are new: then a plain INSERT does, and is quicker; most of all where they
    -- are of one partition. Where the index knows one of them, it is undone, and what follows sees
    -- which.
    IF stamps IS NULL THEN
        BEGIN
            IF target = ALL (partitions) THEN
                SELECT record.position, record.recorded INTO base, moment FROM belated.record
                WHERE record.bandit = bandit_number AND record.partition = target
                ORDER BY record.position DESC LIMIT 1;
                base := coalesce(base, 0);
                moment := greatest(moment, clock);

                INSERT INTO belated.record
                    (position, recorded, "check", bandit, partition, mark, event)
                SELECT base + n, moment, crc # (base + n) # moment # (target::bigint << 40),
                       bandit_number, target, mark, event
                FROM unnest(marks, crcs, events) WITH ORDINALITY AS one (mark, crc, event, n);

                RETURN ARRAY(SELECT generate_series(base + 1, base + cardinality(marks)));
            END IF;

            WITH tail AS MATERIALIZED (
                SELECT home.partition, coalesce(last.position, 0) AS position,
                       greatest(last.recorded, clock) AS recorded
                FROM (SELECT DISTINCT unnest(partitions) AS partition) AS home
                LEFT JOIN LATERAL (
                    SELECT record.position, record.recorded FROM belated.record
                    WHERE record.bandit = bandit_number AND record.partition = home.partition
                    ORDER BY record.position DESC LIMIT 1
                ) AS last ON true
            ), placed AS MATERIALIZED (
                SELECT one.*, tail.recorded,
                       tail.position + count(*) OVER (PARTITION BY one.partition ORDER BY one.n)
                           AS position
                FROM unnest(partitions, marks, crcs, events)
                     WITH ORDINALITY AS one (partition, mark, crc, event, n)
                JOIN tail USING (partition)
            ), written AS (
                INSERT INTO belated.record
                    (position, recorded, "check", bandit, partition, mark, event)
                SELECT position, recorded,
                       crc # position # recorded # (partition::bigint << 40),
                       bandit_number, partition, mark, event
                FROM placed
            )
            SELECT array_agg(placed.position ORDER BY n) INTO positions FROM placed;
            RETURN positions;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;

    WITH given AS MATERIALIZED (
        SELECT one.*,
               (SELECT record.position FROM belated.record
                WHERE record.bandit = bandit_number AND record.partition = one.partition
                  AND record.mark >= one.mark AND record.mark <= one.mark
                  AND record.event = one.event
                ORDER BY record.mark LIMIT 1) AS known
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

-- The records of some ids of a bandit, by the marks between which those of each id lie.
CREATE FUNCTION belated.records_of(
    bandit_number integer,
    partitions    smallint[],
    first         bytea[],
    beyond        bytea[]
) RETURNS TABLE (partition smallint, "position" bigint, recorded bigint, "check" bigint, event bytea)
LANGUAGE sql STABLE
-- As above: by the index of marks, whatever is known of the table.
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
    SELECT found.*
    FROM unnest(partitions, first, beyond) AS wanted (partition, first, beyond)
    CROSS JOIN LATERAL (
        SELECT record.partition, record.position, record.recorded, record."check", record.event
        FROM belated.record
        WHERE record.bandit = bandit_number AND record.partition = wanted.partition
          AND record.mark >= wanted.first AND record.mark < wanted.beyond
        ORDER BY record.mark
    ) AS found
$$;

INSERT INTO belated.migration (version, oldest) VALUES (3, 1);
