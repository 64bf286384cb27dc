CREATE TABLE @orders (
    id      INTEGER PRIMARY KEY,
    status  TEXT NOT NULL DEFAULT 'new',
    version INTEGER NOT NULL DEFAULT 0
);

WITH RECURSIVE number (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM number WHERE id < 500)
INSERT INTO @orders (id) SELECT id FROM number;
