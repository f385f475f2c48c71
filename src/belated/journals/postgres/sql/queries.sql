-- The queries of PostgresJournal. Each begins with its name and a description.

-- settings: server settings that durability depends on
SELECT current_setting('server_version_num')::integer AS version,
       pg_is_in_recovery() AS standby,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit;

-- process: id of the server process
SELECT pg_backend_pid();

-- standbys: how many are connected, and whether commits wait for any
SELECT count(*), current_setting('synchronous_standby_names'),
       current_setting('synchronous_commit')
FROM pg_stat_replication;

-- session: fix the checked settings for this connection, and set timeouts
SELECT set_config('synchronous_commit', current_setting('synchronous_commit'), false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', 'off', false),
       set_config('lock_timeout', %(lock)s, false),
       set_config('statement_timeout', %(statement)s, false),
       set_config('idle_in_transaction_session_timeout', %(statement)s, false);

-- has_tables: whether the tables exist
SELECT to_regclass('belated.migration') IS NOT NULL;

-- version: version of the tables, and the oldest version that works with them
SELECT max(version), max(oldest) FROM belated.migration;

-- lock_tables: let only one process at a time create the tables
SELECT pg_advisory_xact_lock(7088419842034167156);

-- make_partitions: insert the rows that appends to a bandit lock
INSERT INTO belated.partition (bandit, partition)
SELECT %(bandit)s, generate_series(0, %(partitions)s::integer - 1);

-- append: store events, all or none; the function is in schema.sql
SELECT belated.append(
    %(bandits)b::integer[], %(partitions)b::smallint[], %(marks)b::bytea[], %(crcs)b::bigint[],
    %(digests)b::bytea[], %(events)b::bytea[], %(stamps)b::bigint[], %(owners)b::integer[],
    %(homes)b::smallint[], %(decided)b::bytea[], %(kept)b::bigint[], %(requests)b::bytea[],
    %(behind)b::bytea
);

-- lock: block other appends until the transaction ends
SELECT partition FROM belated.partition
WHERE bandit = %(bandit)s AND partition = ANY (%(partitions)s)
ORDER BY partition FOR UPDATE;

-- read: the first records after a position
SELECT position, recorded, "check", digest, event FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position > %(after)s
ORDER BY position LIMIT %(limit)s;

-- read_columns: the same records, with each column combined into one value
SELECT string_agg(int8send(position), '' ORDER BY position),
       string_agg(int8send(recorded), '' ORDER BY position),
       string_agg(int8send("check"), '' ORDER BY position),
       string_agg(digest, '' ORDER BY position),
       string_agg(int4send(length(event)), '' ORDER BY position),
       string_agg(event, '' ORDER BY position)
FROM (
    SELECT position, recorded, "check", digest, event FROM belated.record
    WHERE bandit = %(bandit)s AND partition = %(partition)s AND position > %(after)s
    ORDER BY position LIMIT %(limit)s
) AS page;

-- requests: stored requests of decisions
SELECT position, request FROM belated.request
WHERE bandit = %(bandit)s AND partition = %(partition)s
  AND position = ANY (%(positions)b::bigint[]);

-- overwrite: replace the event of an erased decision, but not its mark and digest
UPDATE belated.record SET event = %(event)b, "check" = %(check)s
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position = %(position)s;

-- drop_request: delete the request of an erased decision
DELETE FROM belated.request
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position = %(position)s;

-- put_outcomes: store outcomes, unless the stored ones are newer
INSERT INTO belated.outcome (bandit, id, partition, version, message)
SELECT %(bandit)s, id, %(partition)s, version, message::jsonb
FROM unnest(%(ids)b::text[], %(versions)b::bigint[], %(messages)b::text[])
     AS one (id, version, message)
ON CONFLICT (bandit, id) DO UPDATE
SET version = excluded.version, message = excluded.message
WHERE outcome.version < excluded.version;

-- drop_outcomes: delete outcomes that have not changed since a position
DELETE FROM belated.outcome
WHERE bandit = %(bandit)s AND id = ANY (ARRAY(
    SELECT outcome.id FROM belated.outcome
    WHERE outcome.bandit = %(bandit)s AND outcome.partition = %(partition)s
      AND outcome.version <= %(start)s
    ORDER BY outcome.version LIMIT %(limit)s
));

-- tail: position and stamp of the last record
SELECT position, recorded FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s
ORDER BY position DESC LIMIT 1;

-- drop: delete some of the records up to the start
WITH gone AS (
    DELETE FROM belated.record
    WHERE bandit = %(bandit)s AND partition = %(partition)s AND position = ANY (ARRAY(
        SELECT record.position FROM belated.record
        WHERE record.bandit = %(bandit)s AND record.partition = %(partition)s
          AND record.position <= %(start)s
        ORDER BY record.position LIMIT %(limit)s
    ))
    RETURNING position
), requests AS (
    DELETE FROM belated.request
    WHERE bandit = %(bandit)s AND partition = %(partition)s
      AND position IN (SELECT position FROM gone)
)
SELECT count(*) FROM gone;

-- ends: last positions of the partitions of some bandits
SELECT home.bandit, array_agg(coalesce(last.position, 0) ORDER BY home.partition)
FROM belated.partition AS home
LEFT JOIN LATERAL (
    SELECT position FROM belated.record
    WHERE record.bandit = home.bandit AND record.partition = home.partition
    ORDER BY position DESC LIMIT 1
) AS last ON true
WHERE home.bandit = ANY (%(numbers)s)
GROUP BY home.bandit;

-- records_of: decisions and a limited number of other records of some ids, by their marks
SELECT partition, position, recorded, "check", digest, event FROM belated.records_of(
    %(bandit)s, %(partitions)b::smallint[], %(least)b::bytea[], %(decided)b::bytea[],
    %(beyond)b::bytea[], %(limit)s
);

-- settled_lately: settlements among the last records
SELECT partition, position, recorded, "check", digest, event
FROM (
    SELECT partition, position, recorded, "check", digest, event, mark FROM belated.record
    WHERE bandit = %(bandit)s AND partition = %(partition)s
    ORDER BY position DESC LIMIT %(recent)s
) AS recent
WHERE mark >= %(least)b AND mark < %(beyond)b
ORDER BY position DESC LIMIT %(limit)s;

-- settled: settlements among all records; "+ 0" prevents a scan of other records
SELECT partition, position, recorded, "check", digest, event FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s
  AND mark >= %(least)b AND mark < %(beyond)b
ORDER BY position + 0 DESC LIMIT %(limit)s;

-- cells: cells by name, unless the version is known
SELECT name, version, written, value FROM belated.cell
JOIN unnest(%(names)s::text[], %(known)s::bigint[]) AS one (wanted, known) ON name = wanted
WHERE version IS DISTINCT FROM known;

-- scan: cells whose names start with a prefix
SELECT name, version, written, value FROM belated.cell
WHERE name >= %(prefix)s AND name < %(prefix)s || chr(127)
ORDER BY name;

-- transact: change cells if versions are as expected; the function is in schema.sql
SELECT belated.transact(
    %(expected)b::text[], %(versions)b::bigint[], %(puts)b::text[], %(contents)b::bytea[],
    %(deletes)b::text[]
);

-- clock: time of the server, in microseconds since 1970
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- missing_rights: privileges on existing tables that the role has on no column
SELECT wanted.name, wanted.privilege, current_user::text
FROM unnest(%(tables)s::text[], %(privileges)s::text[]) AS wanted (name, privilege)
JOIN pg_class ON relname = wanted.name AND relkind = 'r'
JOIN pg_namespace ON pg_namespace.oid = relnamespace AND nspname = 'belated'
WHERE NOT (
    has_schema_privilege(nspname, 'USAGE')
    AND CASE wanted.privilege
        WHEN 'DELETE' THEN has_table_privilege(pg_class.oid, 'DELETE')
        ELSE has_any_column_privilege(pg_class.oid, wanted.privilege)
    END
)
ORDER BY wanted.name, wanted.privilege;
