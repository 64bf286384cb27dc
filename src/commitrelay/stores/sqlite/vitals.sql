-- What monitoring reads again and again: cheap, however large the tables are.

-- blocked_keys_count: keys of a lane behind a retrying or dead event; looking stops at a cap.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step.
WITH RECURSIVE blocked (key) AS (
    SELECT (SELECT key FROM @queue INDEXED BY @queue_blockers
            WHERE lane = :lane AND state IN (1, 3, 4, 5) ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (SELECT q.key FROM @queue AS q INDEXED BY @queue_blockers
            WHERE q.lane = :lane AND q.state IN (1, 3, 4, 5) AND q.key > blocked.key
            ORDER BY q.key LIMIT 1)
    FROM blocked
    WHERE blocked.key IS NOT NULL
    LIMIT :cap
)
SELECT count(*) FROM blocked
WHERE key IS NOT NULL
  AND (SELECT q.state FROM @queue AS q INDEXED BY @queue_blockers
       WHERE q.lane = :lane AND q.state IN (1, 3, 4, 5) AND q.key = blocked.key
       ORDER BY q.seq LIMIT 1) IN (1, 4);

-- table_bytes: the database file, apart from what is free in it.
SELECT (pages.page_count - free.freelist_count) * size.page_size
FROM pragma_page_count AS pages, pragma_freelist_count AS free, pragma_page_size AS size;
