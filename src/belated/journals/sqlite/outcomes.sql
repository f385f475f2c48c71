-- The outcomes of decisions, for other programs. The tables are created when a learner first sends
-- outcomes. A message is a JSON object; of two versions of an outcome, the greater is stored.
CREATE TABLE IF NOT EXISTS outcome (
    bandit    TEXT NOT NULL,
    id        TEXT NOT NULL,
    partition INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    message   TEXT NOT NULL,
    PRIMARY KEY (bandit, id)
);

-- Finds the outcomes that have changed since a version.
CREATE INDEX IF NOT EXISTS outcome_by_version ON outcome (bandit, partition, version);

-- A readable view of the outcomes.
CREATE VIEW IF NOT EXISTS outcomes AS
SELECT bandit,
       partition,
       id,
       version,
       json_extract(message, '$.state') AS state,
       json_extract(message, '$.at') AS at,
       json_extract(message, '$.recorded') AS recorded,
       json_extract(message, '$.effective') AS effective,
       json_extract(message, '$.subject') AS subject,
       json_extract(message, '$.action') AS action,
       json_extract(message, '$.index') AS "index",
       json_extract(message, '$.propensity') AS propensity,
       json_extract(message, '$.overall') AS overall,
       json_extract(message, '$.mean') AS mean,
       json_extract(message, '$.model') AS model,
       json_extract(message, '$.source') AS source,
       coalesce(json_extract(message, '$.group'), '') AS "group",
       json_extract(message, '$.context') AS context,
       json_extract(message, '$.record') AS record,
       json_extract(message, '$.value') AS value,
       json_extract(message, '$.rewarded') AS rewarded,
       json_extract(message, '$.delay') AS delay,
       coalesce(json_extract(message, '$.late'), 0) AS late,
       coalesce(json_extract(message, '$.conflict'), 0) AS conflict
FROM outcome;
