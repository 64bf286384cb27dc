-- What monitoring reads again and again: cheap, however large the tables are.

-- lanes: all lanes.
SELECT id, name FROM @lane ORDER BY id;

-- blocked_keys_count: keys of a lane behind a retrying or dead event; looking stops at a cap.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step.
WITH RECURSIVE blocked (k, number) AS (
    SELECT (SELECT q.blocking_key FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key >= 0
            ORDER BY q.blocking_key LIMIT 1) AS k, 1
    UNION ALL
    SELECT (SELECT q.blocking_key FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key > blocked.k
            ORDER BY q.blocking_key LIMIT 1), blocked.number + 1
    FROM blocked
    WHERE blocked.k IS NOT NULL AND blocked.number < %(cap)s
)
SELECT count(*)
FROM (
    SELECT (SELECT q.seq FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key = blocked.k
            ORDER BY q.seq LIMIT 1) AS seq
    FROM blocked
    WHERE blocked.k IS NOT NULL
) AS first
STRAIGHT_JOIN @queue AS head FORCE INDEX (PRIMARY)
    ON head.seq = first.seq AND head.lane = %(lane)s
WHERE head.state IN (1, 4);

-- table_bytes: log and queue on disk, as the server estimates it.
SELECT coalesce(sum(data_length + index_length), 0)
FROM information_schema.tables
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name IN (%(event)s, %(queue)s);
