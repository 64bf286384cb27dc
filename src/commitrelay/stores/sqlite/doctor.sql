-- What the doctor asks an SQLite database. Each answers with named columns and changes nothing.

-- parts: the indexes and triggers that are there.
SELECT name, 1 AS works FROM sqlite_schema WHERE type IN ('index', 'trigger');

-- checkpoint: pages in the write-ahead log, and how many of them could be moved to the database.
PRAGMA wal_checkpoint(PASSIVE);

-- pages: of the database.
SELECT page_size, page_count, freelist_count
FROM pragma_page_size, pragma_page_count, pragma_freelist_count;

-- clock: the database's time.
SELECT (julianday('now') - 2440587.5) * 86400.0 AS seconds;
