-- For the service: who learns a bandit, and the model that the last one published.

-- Whoever holds the lease learns; the epoch counts holders, and fences those of before.
CREATE TABLE belated.leader (
    bandit integer PRIMARY KEY REFERENCES belated.bandit,
    holder text NOT NULL,
    epoch  bigint NOT NULL,
    until  timestamptz NOT NULL
);

-- The number counts publications: deciders ask for one beyond the last they have seen.
CREATE TABLE belated.model (
    bandit    integer PRIMARY KEY REFERENCES belated.bandit,
    number    bigint NOT NULL,
    published timestamptz NOT NULL DEFAULT now(),
    data      bytea NOT NULL
);

INSERT INTO belated.migration (version, oldest) VALUES (2, 1);
