-- For the service: the keys that programs show when they ask.

-- A key itself is nowhere: only its SHA-256. Of the two places under a name the second is for the
-- time in which a key is replaced. Rows stay when a key is revoked, so that it can be said when.
CREATE TABLE belated.key (
    id      text PRIMARY KEY, -- the public part of the key
    name    text NOT NULL,
    place   smallint NOT NULL CHECK (place IN (1, 2)),
    bandits text[] NOT NULL, -- * for all
    scopes  text[] NOT NULL,
    rate    double precision, -- requests a second; NULL for any number
    hash    bytea NOT NULL UNIQUE,
    created timestamptz NOT NULL DEFAULT now(),
    revoked timestamptz
);

CREATE UNIQUE INDEX key_has_its_place ON belated.key (name, place) WHERE revoked IS NULL;

INSERT INTO belated.migration (version, oldest) VALUES (4, 1);
