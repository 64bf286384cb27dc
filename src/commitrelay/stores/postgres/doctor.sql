-- What the doctor asks a PostgreSQL database. Each answers with named columns and changes nothing.

-- session: which server process serves this connection.
SELECT pg_backend_pid() AS pid;

-- isolation: what transactions run at if nobody says.
SELECT current_setting('default_transaction_isolation') AS level;

-- parts: the indexes and triggers that are there, and whether they work.
SELECT c.relname AS name, i.indisvalid AS works
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
WHERE c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = '@event'::regclass)
UNION ALL
SELECT t.tgname, t.tgenabled <> 'D'
FROM pg_catalog.pg_trigger AS t
WHERE t.tgrelid = '@event'::regclass AND NOT t.tgisinternal;

-- autovacuum: whether and how vacuum follows the queue.
SELECT current_setting('autovacuum')::boolean AS enabled, coalesce(c.reloptions, '{}') AS options
FROM pg_catalog.pg_class AS c
WHERE c.oid = '@queue'::regclass;

-- bloat: what the queue holds and what it takes.
SELECT pg_relation_size('@queue')::bigint AS bytes, s.n_live_tup AS live, s.n_dead_tup AS dead
FROM pg_catalog.pg_stat_all_tables AS s
WHERE s.relid = '@queue'::regclass;

-- long_transactions: of this database, in seconds; also those that wait for a second phase.
SELECT a.pid::text AS pid, a.usename AS account, a.application_name AS application, a.state,
       EXTRACT(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds,
       EXTRACT(epoch FROM clock_timestamp() - a.query_start)::double precision AS query_seconds
FROM pg_catalog.pg_stat_activity AS a
WHERE a.datname = current_database()
  AND a.pid <> pg_backend_pid()
  AND a.xact_start < clock_timestamp() - %(seconds)s * interval '1 second'
UNION ALL
SELECT p.gid, p.owner, 'a prepared transaction', 'prepared',
       EXTRACT(epoch FROM clock_timestamp() - p.prepared)::double precision, NULL
FROM pg_catalog.pg_prepared_xacts AS p
WHERE p.database = current_database()
  AND p.prepared < clock_timestamp() - %(seconds)s * interval '1 second'
ORDER BY seconds DESC;

-- clock: the database's time.
SELECT EXTRACT(epoch FROM clock_timestamp())::double precision AS seconds;

-- replication_slots: who keeps the server from removing its log.
SELECT s.slot_name AS name, s.active, s.wal_status AS status,
       coalesce(pg_wal_lsn_diff(
           CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                ELSE pg_current_wal_lsn() END,
           s.restart_lsn), 0)::bigint AS bytes
FROM pg_catalog.pg_replication_slots AS s
WHERE s.restart_lsn IS NOT NULL OR s.wal_status = 'lost'
ORDER BY s.slot_name;

-- encryption: whether this connection is encrypted.
SELECT s.ssl AS encrypted FROM pg_catalog.pg_stat_ssl AS s WHERE s.pid = pg_backend_pid();
