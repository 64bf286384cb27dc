-- What monitoring reads again and again: cheap, however large the tables are.

-- blocked_keys_count: keys of each lane behind a retrying or dead event; looking stops at a cap.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step.
SELECT
    lane.name,
    (WITH RECURSIVE head (key, state) AS (
        (SELECT q.key, q.state FROM @queue AS q
         WHERE q.lane = lane.id AND q.state IN (1, 3, 4, 5)
         ORDER BY q.lane, q.key, q.seq LIMIT 1)
        UNION ALL
        SELECT following.* FROM head
        CROSS JOIN LATERAL (
            SELECT q.key, q.state FROM @queue AS q
            WHERE q.lane = lane.id AND q.state IN (1, 3, 4, 5) AND q.key > head.key
            ORDER BY q.lane, q.key, q.seq LIMIT 1
        ) AS following
    )
    SELECT count(*) FROM (SELECT head.state FROM head LIMIT %(cap)s) AS capped
    WHERE capped.state IN (1, 4))
FROM @lane AS lane;

-- table_bytes: log and queue on disk, with indexes and, if there are any, partitions.
SELECT pg_total_relation_size('@event') + pg_total_relation_size('@queue')
    + coalesce((SELECT sum(pg_total_relation_size(part.relid))
                FROM pg_partition_tree('@event') AS part WHERE part.isleaf), 0)::bigint;

-- slot_lag: how much log the server keeps for each replication slot.
SELECT slot_name::text, greatest(0, pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
    restart_lsn))::bigint
FROM pg_replication_slots
WHERE restart_lsn IS NOT NULL;
