-- The tables of the file in which reports wait.
CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO settings VALUES ('bytes', 0);
CREATE TABLE definitions (
    metric TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE totals (
    metric TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (metric, name)
) WITHOUT ROWID;
CREATE TABLE open_batches (
    number INTEGER PRIMARY KEY, metric TEXT NOT NULL, revision INTEGER NOT NULL,
    pane_ms INTEGER NOT NULL, attributes TEXT NOT NULL, opened_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL, reports INTEGER NOT NULL,
    UNIQUE (metric, revision, pane_ms, attributes)
);
CREATE TABLE rows (
    number INTEGER PRIMARY KEY, batch INTEGER NOT NULL, levels BLOB NOT NULL, reports BLOB NOT NULL,
    time_ms INTEGER NOT NULL
);
CREATE INDEX rows_by_batch ON rows (batch);
CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT, metric TEXT NOT NULL, payload BLOB NOT NULL,
    id BLOB NOT NULL, reports INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    refusals INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE failing (
    number INTEGER PRIMARY KEY, errors INTEGER NOT NULL, since_ms INTEGER NOT NULL
);
