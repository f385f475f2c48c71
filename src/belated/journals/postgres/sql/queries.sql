-- What PostgresJournal asks of the server. A query begins with its name and what it is for.

-- settings: the settings on which every promise rests
SELECT current_setting('server_version_num')::integer AS version,
       pg_is_in_recovery() AS standby,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit;

-- process: which process of the server answers
SELECT pg_backend_pid();

-- standbys: how many are connected, and whether a commit waits for any
SELECT count(*), current_setting('synchronous_standby_names'),
       current_setting('synchronous_commit')
FROM pg_stat_replication;

-- session: hold what was checked for this connection, and bound every wait
SELECT set_config('synchronous_commit', current_setting('synchronous_commit'), false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', 'off', false),
       set_config('lock_timeout', %(lock)s, false),
       set_config('statement_timeout', %(statement)s, false),
       set_config('idle_in_transaction_session_timeout', %(statement)s, false);

-- has_tables: whether this database has the tables at all
SELECT to_regclass('belated.migration') IS NOT NULL;

-- version: which version the tables have, and the oldest that can work with them
SELECT max(version), max(oldest) FROM belated.migration;

-- lock_tables: let one process at a time make the tables
SELECT pg_advisory_xact_lock(7088419842034167156);

-- register: a bandit that may be new, with its partitions
WITH made AS (
    INSERT INTO belated.bandit (name, partitions, topic)
    VALUES (%(name)s, %(partitions)s, %(topic)s)
    ON CONFLICT DO NOTHING RETURNING number -- if the name or the number exists
), homes AS (
    INSERT INTO belated.partition (bandit, partition)
    SELECT number, generate_series(0, %(partitions)s::integer - 1) FROM made
)
INSERT INTO belated.snapshot (bandit, partition)
SELECT number, generate_series(0, %(partitions)s::integer - 1) FROM made;

-- find: the number of a bandit, that of its partitions, and where its records are
SELECT number, partitions, topic FROM belated.bandit WHERE name = %(name)s;

-- bandits: what all are
SELECT name, partitions, identity FROM belated.bandit ORDER BY name;

-- snapshots: of all bandits, with the size of their pieces
SELECT bandit.name, partition, position, fingerprint, sum(coalesce(length(data), 0))::bigint
FROM belated.snapshot
JOIN belated.bandit ON bandit.number = snapshot.bandit
LEFT JOIN belated.piece USING (bandit, partition)
WHERE seal IS NOT NULL
GROUP BY bandit.name, partition, position, fingerprint ORDER BY bandit.name, partition;

-- rename: a bandit, unless another has the name
UPDATE belated.bandit SET name = %(new)s WHERE name = %(name)s
AND NOT EXISTS (SELECT FROM belated.bandit AS other WHERE other.name = %(new)s)
RETURNING number;

-- append: keep events, all or none; the function is in schema.sql
SELECT belated.append(
    %(bandits)b::integer[], %(partitions)b::smallint[], %(marks)b::bytea[], %(crcs)b::bigint[],
    %(digests)b::bytea[], %(events)b::bytea[], %(stamps)b::bigint[], %(owners)b::integer[],
    %(homes)b::smallint[], %(halves)b::bytea[], %(kept)b::bigint[], %(requests)b::bytea[],
    %(behind)b::bytea
);

-- lock: keep others from appending until the transaction ends
SELECT partition FROM belated.partition
WHERE bandit = %(bandit)s AND partition = ANY (%(partitions)s)
ORDER BY partition FOR UPDATE;

-- read: the first records beyond a position
SELECT position, recorded, "check", digest, event FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position > %(after)s
ORDER BY position LIMIT %(limit)s;

-- read_columns: the same, each column as one value
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

-- requests: what decisions were chosen from
SELECT position, request FROM belated.request
WHERE bandit = %(bandit)s AND partition = %(partition)s
  AND position = ANY (%(positions)b::bigint[]);

-- overwrite: the event of an erased decision; its mark and digest stay
UPDATE belated.record SET event = %(event)b, "check" = %(check)s
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position = %(position)s;

-- drop_request: that of an erased decision
DELETE FROM belated.request
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position = %(position)s;

-- tail: position and stamp of the last record
SELECT position, recorded FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s
ORDER BY position DESC LIMIT 1;

-- identify: store what the bandit is, if nothing is stored yet
UPDATE belated.bandit SET identity = %(identity)s
WHERE number = %(bandit)s AND identity IS NULL;

-- reidentify: store what the bandit is
UPDATE belated.bandit SET identity = %(identity)s WHERE number = %(bandit)s;

-- identity: what the bandit is
SELECT identity FROM belated.bandit WHERE number = %(bandit)s;

-- acquire: become the owner of a partition; those before are not any more
UPDATE belated.snapshot SET epoch = epoch + 1
WHERE bandit = %(bandit)s AND partition = %(partition)s RETURNING epoch;

-- lock_snapshot: keep others from saving until the transaction ends
SELECT epoch, position FROM belated.snapshot
WHERE bandit = %(bandit)s AND partition = %(partition)s FOR UPDATE;

-- checksums: of the pieces that are stored
SELECT name, checksum FROM belated.piece
WHERE bandit = %(bandit)s AND partition = %(partition)s;

-- drop_pieces: all but those that are kept
DELETE FROM belated.piece
WHERE bandit = %(bandit)s AND partition = %(partition)s AND name <> ALL (%(kept)s);

-- add_piece: one piece of a snapshot
INSERT INTO belated.piece (bandit, partition, name, checksum, data)
VALUES (%(bandit)s, %(partition)s, %(name)s, %(checksum)s, %(data)b);

-- save: what the pieces belong to
UPDATE belated.snapshot
SET position = %(position)s, fingerprint = %(fingerprint)s, seal = %(seal)s
WHERE bandit = %(bandit)s AND partition = %(partition)s;

-- load: a snapshot with its pieces
SELECT snapshot.position, snapshot.fingerprint, snapshot.seal,
       piece.name, piece.checksum, piece.data
FROM belated.snapshot LEFT JOIN belated.piece USING (bandit, partition)
WHERE snapshot.bandit = %(bandit)s AND snapshot.partition = %(partition)s
  AND snapshot.seal IS NOT NULL;

-- discard: a damaged snapshot, unless another has been saved since
UPDATE belated.snapshot SET position = NULL, fingerprint = NULL, seal = NULL
WHERE bandit = %(bandit)s AND partition = %(partition)s AND seal = %(seal)s
RETURNING partition;

-- start: the last record that was dropped
SELECT position, recorded FROM belated.base
WHERE bandit = %(bandit)s AND partition = %(partition)s;

-- drop: some of the records up to the start, but for the marks between those given
WITH gone AS (
    DELETE FROM belated.record
    WHERE bandit = %(bandit)s AND partition = %(partition)s AND position = ANY (ARRAY(
        SELECT record.position FROM belated.record
        WHERE record.bandit = %(bandit)s AND record.partition = %(partition)s
          AND record.position <= %(start)s
          AND NOT (record.mark >= %(least)b AND record.mark < %(beyond)b)
        ORDER BY record.position LIMIT %(limit)s
    ))
    RETURNING position
), requests AS (
    DELETE FROM belated.request
    WHERE bandit = %(bandit)s AND partition = %(partition)s
      AND position IN (SELECT position FROM gone)
)
SELECT count(*) FROM gone;

-- base: what the records that were dropped came to
SELECT base.position, base.fingerprint, base.seal, piece.name, piece.checksum, piece.data
FROM belated.base LEFT JOIN belated.base_piece AS piece USING (bandit, partition, position)
WHERE base.bandit = %(bandit)s AND base.partition = %(partition)s;

-- add_base_piece: before the base that it is of
INSERT INTO belated.base_piece (bandit, partition, position, name, checksum, data)
VALUES (%(bandit)s, %(partition)s, %(position)s, %(name)s, %(checksum)s, %(data)b)
ON CONFLICT (bandit, partition, position, name)
DO UPDATE SET checksum = excluded.checksum, data = excluded.data;

-- undone: how many records undo others
SELECT count(*) FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s
  AND mark >= %(least)b AND mark < %(beyond)b;

-- rebase: let a base take the place of the last
INSERT INTO belated.base (bandit, partition, position, recorded, fingerprint, seal)
VALUES (%(bandit)s, %(partition)s, %(position)s, %(recorded)s, %(fingerprint)s, %(seal)s)
ON CONFLICT (bandit, partition) DO UPDATE
SET position = excluded.position, recorded = excluded.recorded,
    fingerprint = excluded.fingerprint, seal = excluded.seal;

-- drop_base_pieces: those of any other base
DELETE FROM belated.base_piece
WHERE bandit = %(bandit)s AND partition = %(partition)s AND position <> %(position)s;

-- acquire_lease: become, or stay, the leader for some seconds; nothing while another is
INSERT INTO belated.leader AS mine (bandit, holder, epoch, until)
VALUES (%(bandit)s, %(holder)s, 1, now() + %(seconds)s * interval '1 second')
ON CONFLICT (bandit) DO UPDATE
SET holder = excluded.holder, until = excluded.until,
    epoch = mine.epoch + (mine.holder <> excluded.holder)::integer
WHERE mine.holder = excluded.holder OR mine.until <= now()
RETURNING epoch;

-- renew_leases: stay the leader of many bandits, wherever no one else has become it
UPDATE belated.leader SET until = now() + %(seconds)s * interval '1 second'
FROM unnest(%(names)s::text[], %(holders)s::text[]) AS held (name, holder)
JOIN belated.bandit USING (name)
WHERE leader.bandit = bandit.number AND leader.holder = held.holder
RETURNING held.name, epoch;

-- release_lease: let another lead at once
UPDATE belated.leader SET until = '-infinity'
WHERE bandit = %(bandit)s AND holder = %(holder)s;

-- leader: who leads, and for how many seconds more
SELECT holder, epoch, extract(epoch FROM until - now())::float8 FROM belated.leader
WHERE bandit = %(bandit)s AND until > now();

-- publish: a model, in place of the last one; nothing if another has led since
INSERT INTO belated.model AS last (bandit, number, data)
SELECT bandit, 1, %(data)b FROM belated.leader
WHERE bandit = %(bandit)s AND epoch = %(epoch)s FOR SHARE
ON CONFLICT (bandit) DO UPDATE
SET number = last.number + 1, published = now(), data = excluded.data
RETURNING number;

-- published: the model, if it is another than one was; after a restore its number can be lower
SELECT number, data FROM belated.model WHERE bandit = %(bandit)s AND number <> %(after)s;

-- all_published: the same for several bandits
SELECT bandit.name, model.number, model.data
FROM unnest(%(names)s::text[], %(after)s::bigint[]) AS known (name, number)
JOIN belated.bandit USING (name)
JOIN belated.model ON model.bandit = bandit.number AND model.number <> known.number;

-- all_modes: the last event of each bandit that changed its mode
SELECT bandit.name, last.*
FROM belated.bandit
CROSS JOIN LATERAL (
    SELECT partition, position, recorded, "check", digest, event FROM belated.record
    WHERE record.bandit = bandit.number AND partition = 0
      AND mark >= %(least)b AND mark < %(beyond)b
    ORDER BY position + 0 DESC LIMIT 1
) AS last
WHERE bandit.name = ANY (%(names)s);

-- glance: where the partitions of some bandits end, and whether anyone leads
SELECT bandit.name, coalesce(leader.until > now(), false),
       array_agg(coalesce(last.position, 0) ORDER BY home.partition)
FROM belated.bandit
JOIN belated.partition AS home ON home.bandit = bandit.number
LEFT JOIN belated.leader ON leader.bandit = bandit.number
LEFT JOIN LATERAL (
    SELECT position FROM belated.record
    WHERE record.bandit = home.bandit AND record.partition = home.partition
    ORDER BY position DESC LIMIT 1
) AS last ON true
WHERE bandit.name = ANY (%(names)s)
GROUP BY bandit.name, leader.until;

-- lock_workers: let one worker at a time claim partitions; appends go on
SELECT partitions FROM belated.bandit WHERE number = %(bandit)s FOR NO KEY UPDATE;

-- end_sessions: of workers that have not renewed theirs in time
DELETE FROM belated.worker
WHERE bandit = %(bandit)s AND name <> %(worker)s AND until <= clock_timestamp();

-- workers: with their partitions
SELECT name, partitions FROM belated.worker WHERE bandit = %(bandit)s;

-- renew_session: of a worker, with the partitions that are its own
INSERT INTO belated.worker (bandit, name, until, partitions)
VALUES (%(bandit)s, %(worker)s, clock_timestamp() + %(seconds)s * interval '1 second',
        %(partitions)s::smallint[])
ON CONFLICT (bandit, name) DO UPDATE
SET until = excluded.until, partitions = excluded.partitions;

-- give_back: partitions that others should have
UPDATE belated.worker
SET partitions = ARRAY(SELECT unnest(partitions) EXCEPT SELECT unnest(%(partitions)s::smallint[]))
WHERE bandit = %(bandit)s AND name = %(worker)s;

-- leave: end the session of a worker
DELETE FROM belated.worker WHERE bandit = %(bandit)s AND name = %(worker)s;

-- send: the sums of partitions, where the epoch holds; of a later epoch or position they stay
WITH held AS (
    SELECT given.* FROM unnest(%(partitions)s::smallint[], %(epochs)s::bigint[],
                               %(positions)s::bigint[], %(centers)s::bigint[], %(data)s::bytea[])
         AS given (partition, epoch, position, center, data)
    JOIN belated.snapshot AS owner
      ON owner.bandit = %(bandit)s AND owner.partition = given.partition
     AND owner.epoch = given.epoch
), written AS (
    INSERT INTO belated.sums AS last (bandit, partition, epoch, position, center, data)
    SELECT %(bandit)s, partition, epoch, position, center, data FROM held
    ON CONFLICT (bandit, partition) DO UPDATE
    SET epoch = excluded.epoch, position = excluded.position, center = excluded.center,
        data = excluded.data
    WHERE (last.epoch, last.position, last.center)
       <= (excluded.epoch, excluded.position, excluded.center)
)
SELECT partition FROM held;

-- sent: the last sums of each partition, but for those that are known
SELECT partition, epoch, position, center, data FROM belated.sums
WHERE bandit = %(bandit)s AND (partition, epoch, position, center) NOT IN (
    SELECT * FROM unnest(%(partitions)s::smallint[], %(epochs)s::bigint[],
                         %(positions)s::bigint[], %(centers)s::bigint[])
)
ORDER BY partition;

-- records_of: the records of some ids, found by their marks
SELECT partition, position, recorded, "check", digest, event FROM belated.records_of(
    %(bandit)s, %(partitions)b::smallint[], %(least)b::bytea[], %(beyond)b::bytea[]
);

-- settled_lately: those of the last records that have no id
SELECT partition, position, recorded, "check", digest, event
FROM (
    SELECT partition, position, recorded, "check", digest, event, mark FROM belated.record
    WHERE bandit = %(bandit)s AND partition = %(partition)s
    ORDER BY position DESC LIMIT %(recent)s
) AS recent
WHERE mark >= %(least)b AND mark < %(beyond)b
ORDER BY position DESC LIMIT %(limit)s;

-- last_marked: the same among all, by any marks; "+ 0" keeps the planner from reading all that is no answer
SELECT partition, position, recorded, "check", digest, event FROM belated.record
WHERE bandit = %(bandit)s AND partition = %(partition)s
  AND mark >= %(least)b AND mark < %(beyond)b
ORDER BY position + 0 DESC LIMIT %(limit)s;

-- keep_act: a record of an operator, whose log is elsewhere; again does nothing
WITH home AS (
    SELECT bandit, partition FROM belated.partition
    WHERE bandit = %(bandit)s AND partition = %(partition)s
), written AS (
    INSERT INTO belated.record
        (position, recorded, "check", bandit, partition, mark, digest, event)
    SELECT %(position)s, %(recorded)s, %(check)s, bandit, partition, %(mark)b, %(digest)b, %(event)b
    FROM home
    ON CONFLICT DO NOTHING
)
SELECT partition FROM home;

-- create_key: in the first of the two places under its name that is free; nothing if none is
INSERT INTO belated.key (id, name, place, bandits, scopes, rate, hash)
SELECT %(id)s, %(name)s, free.place, %(bandits)s, %(scopes)s, %(rate)s, %(hash)b
FROM generate_series(1, 2) AS free (place)
WHERE NOT EXISTS (SELECT FROM belated.key AS other
                  WHERE other.name = %(name)s AND other.place = free.place
                    AND other.revoked IS NULL)
ORDER BY free.place LIMIT 1
ON CONFLICT DO NOTHING RETURNING id;

-- live_keys: what services must know of those that are not revoked
SELECT id, name, bandits, scopes, rate, hash FROM belated.key WHERE revoked IS NULL ORDER BY id;

-- all_keys: what people want to know, the newest first
SELECT id, name, bandits, scopes, rate, created, revoked FROM belated.key
ORDER BY created DESC, id;

-- revoke_key: for good, and once: a second time changes nothing; nothing if there is none
UPDATE belated.key SET revoked = coalesce(revoked, now()) WHERE id = %(id)s RETURNING name;

-- cells: by name, unless the version is known
SELECT name, version, written, value FROM belated.cell
JOIN unnest(%(names)s::text[], %(known)s::bigint[]) AS one (wanted, known) ON name = wanted
WHERE version IS DISTINCT FROM known;

-- scan: the cells whose names begin like this
SELECT name, version, written, value FROM belated.cell
WHERE name >= %(prefix)s AND name < %(prefix)s || chr(127)
ORDER BY name;

-- transact: change cells if others are as expected; the function is in schema.sql
SELECT belated.transact(
    %(expected)s::text[], %(versions)s::bigint[], %(puts)s::text[], %(contents)b::bytea[],
    %(deletes)s::text[]
);

-- clock: the server's, in microseconds since 1970
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- missing_rights: which of some rights on tables that are there the role has on no column
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
