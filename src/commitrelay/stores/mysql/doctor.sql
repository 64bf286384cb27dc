-- What the doctor asks a MySQL or MariaDB database. Each answers with named columns and changes
-- nothing.

-- isolation: what transactions run at if nobody says.
SHOW GLOBAL VARIABLES WHERE variable_name IN ('transaction_isolation', 'tx_isolation');

-- parts: the indexes and triggers that are there.
SELECT DISTINCT s.index_name AS name, 1 AS works
FROM information_schema.statistics AS s
WHERE s.table_schema = coalesce(%(schema)s, database())
UNION ALL
SELECT t.trigger_name, 1
FROM information_schema.triggers AS t
WHERE t.trigger_schema = coalesce(%(schema)s, database());

-- enqueuing: whether the log was set up without a trigger, so that writers fill the queue.
SELECT 1 AS by_writer FROM information_schema.columns AS c
WHERE c.table_schema = coalesce(%(schema)s, database())
  AND c.table_name = concat(%(prefix)s, '_event') AND c.column_name = 'enqueued';

-- long_transactions: in seconds. Needs the right PROCESS.
SELECT CAST(t.trx_mysql_thread_id AS CHAR) AS pid, coalesce(p.user, '?') AS account,
       'InnoDB' AS application, lower(t.trx_state) AS state,
       CAST(timestampdiff(SECOND, t.trx_started, now()) AS DOUBLE) AS seconds,
       CAST(p.time AS DOUBLE) AS query_seconds
FROM information_schema.innodb_trx AS t
LEFT JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id <> connection_id()
  AND (p.db IS NULL OR p.db = coalesce(%(schema)s, database()))
  AND timestampdiff(SECOND, t.trx_started, now()) > %(seconds)s
ORDER BY seconds DESC;

-- clock: the database's time.
SELECT CAST(timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6)) / 1000000 AS DOUBLE)
       AS seconds;

-- binlog: whether there is one, and how changes are written to it.
SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'binlog_format');

-- encryption: the cipher of this connection, empty if there is none.
SHOW SESSION STATUS LIKE 'Ssl_cipher';
