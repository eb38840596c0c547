-- The tables of a ledger.
CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE budgets (metric TEXT PRIMARY KEY, parts INTEGER NOT NULL);
CREATE TABLE spent (
    time_ms INTEGER NOT NULL, metric TEXT NOT NULL, parts INTEGER NOT NULL,
    reports INTEGER NOT NULL, answer INTEGER UNIQUE
);
CREATE INDEX spent_by_time ON spent (time_ms);
CREATE TABLE totals (
    metric TEXT PRIMARY KEY, parts INTEGER NOT NULL, reports INTEGER NOT NULL,
    since_ms INTEGER NOT NULL
);
CREATE TABLE answers (
    id INTEGER PRIMARY KEY, metric TEXT NOT NULL, revision INTEGER NOT NULL,
    parts INTEGER NOT NULL, value INTEGER NOT NULL, report BLOB NOT NULL,
    UNIQUE (metric, revision, parts, value)
);
CREATE TABLE devices (
    metric TEXT NOT NULL, revision INTEGER NOT NULL, threshold BLOB NOT NULL,
    answered_ms INTEGER NOT NULL, PRIMARY KEY (metric, revision)
);
