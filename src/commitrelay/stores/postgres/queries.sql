-- The queries of the PostgreSQL store. Only the database's clock is used: statement_timestamp()
-- where an index has to be searched by it, which is never later than the true time.
--
-- Plans are kept while the queue grows from nothing to millions, so the queries leave the planner
-- no bad choice: rows to change are named by `seq = ANY (…)`, which the primary key looks up;
-- `state + 0` keeps it from reading a partial index from end to end instead; and a subquery with a
-- LIMIT or OFFSET is not turned into a join, which it might do by reading a whole table.

-- begin_sweep: one snapshot for all claims of a sweep.
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- end_sweep: let the snapshot go.
COMMIT;

-- claim_all: what is due, then pending events, of the leased buckets; due ones by due time.
-- The first blocking events of up to 100 keys are looked up once. Only if there are more, each row
-- looks for its own, which is slow where vacuum has not yet followed.
WITH RECURSIVE head (key, seq) AS (
    (SELECT q.key, q.seq FROM @queue AS q
     WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5)
     ORDER BY q.lane, q.key, q.seq LIMIT 1)
    UNION ALL
    SELECT following.* FROM head
    CROSS JOIN LATERAL (
        SELECT q.key, q.seq FROM @queue AS q
        WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5) AND q.key > head.key
        ORDER BY q.lane, q.key, q.seq LIMIT 1
    ) AS following
),
blocker AS MATERIALIZED (SELECT head.key, head.seq FROM head LIMIT 101)
SELECT * FROM (
    (SELECT
        q.seq, q.key, q.bucket, q.state, q.attempts,
        CASE WHEN (SELECT count(*) FROM blocker) > 100
            THEN EXISTS (SELECT FROM @queue AS b
                         WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq
                           AND b.state IN (1, 3, 4, 5))
            ELSE q.key = ANY (ARRAY(SELECT b.key FROM blocker AS b))
                AND (SELECT b.seq FROM blocker AS b WHERE b.key = q.key) < q.seq
        END,
        e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
        e.content_type, e.headers::text, e.idempotency_key,
        replace((e.created_at AT TIME ZONE 'UTC')::text, ' ', 'T') || 'Z'
    FROM (
        SELECT * FROM @queue AS d
        WHERE d.lane = %(lane)s
          AND d.state IN (1, 2, 5) AND d.state IN (1, 2)
          AND d.due_at <= statement_timestamp()
          AND (%(buckets)s::smallint[] IS NULL OR d.bucket = ANY (%(buckets)s::smallint[]))
          AND d.seq NOT IN (SELECT unnest(%(exclude_seqs)s::bigint[]))
          AND d.key NOT IN (SELECT unnest(%(exclude_keys)s::bigint[]))
        ORDER BY d.due_at
        LIMIT %(limit)s
    ) AS q
    CROSS JOIN LATERAL (SELECT * FROM @event WHERE seq = q.seq OFFSET 0) AS e)
    UNION ALL
    (SELECT
        q.seq, q.key, q.bucket, q.state, q.attempts,
        CASE WHEN (SELECT count(*) FROM blocker) > 100
            THEN EXISTS (SELECT FROM @queue AS b
                         WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq
                           AND b.state IN (1, 3, 4, 5))
            ELSE q.key = ANY (ARRAY(SELECT b.key FROM blocker AS b))
                AND (SELECT b.seq FROM blocker AS b WHERE b.key = q.key) < q.seq
        END,
        e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
        e.content_type, e.headers::text, e.idempotency_key,
        replace((e.created_at AT TIME ZONE 'UTC')::text, ' ', 'T') || 'Z'
    FROM @queue AS q
    CROSS JOIN LATERAL (SELECT * FROM @event WHERE seq = q.seq OFFSET 0) AS e
    WHERE q.lane = %(lane)s
      AND q.state = 0
      AND (%(buckets)s::smallint[] IS NULL OR q.bucket = ANY (%(buckets)s::smallint[]))
      AND q.seq NOT IN (SELECT unnest(%(exclude_seqs)s::bigint[]))
      AND q.key NOT IN (SELECT unnest(%(exclude_keys)s::bigint[]))
    ORDER BY q.seq
    LIMIT %(limit)s)
) AS claimable
LIMIT %(limit)s;

-- claim_pending: pending events of the leased buckets above the read-ahead floor, in seq order.
WITH RECURSIVE head (key, seq) AS (
    (SELECT q.key, q.seq FROM @queue AS q
     WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5)
     ORDER BY q.lane, q.key, q.seq LIMIT 1)
    UNION ALL
    SELECT following.* FROM head
    CROSS JOIN LATERAL (
        SELECT q.key, q.seq FROM @queue AS q
        WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5) AND q.key > head.key
        ORDER BY q.lane, q.key, q.seq LIMIT 1
    ) AS following
),
blocker AS MATERIALIZED (SELECT head.key, head.seq FROM head LIMIT 101)
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts,
    CASE WHEN (SELECT count(*) FROM blocker) > 100
        THEN EXISTS (SELECT FROM @queue AS b
                     WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq
                       AND b.state IN (1, 3, 4, 5))
        ELSE q.key = ANY (ARRAY(SELECT b.key FROM blocker AS b))
            AND (SELECT b.seq FROM blocker AS b WHERE b.key = q.key) < q.seq
    END,
    e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
    e.content_type, e.headers::text, e.idempotency_key,
    replace((e.created_at AT TIME ZONE 'UTC')::text, ' ', 'T') || 'Z'
FROM @queue AS q
CROSS JOIN LATERAL (SELECT * FROM @event WHERE seq = q.seq OFFSET 0) AS e
WHERE q.lane = %(lane)s
  AND q.state = 0
  AND q.seq > %(above_seq)s
  AND (%(buckets)s::smallint[] IS NULL OR q.bucket = ANY (%(buckets)s::smallint[]))
  AND q.seq NOT IN (SELECT unnest(%(exclude_seqs)s::bigint[]))
  AND q.key NOT IN (SELECT unnest(%(exclude_keys)s::bigint[]))
ORDER BY q.seq
LIMIT %(limit)s;

-- claim_heads: the first deliverable event of each key, locked and marked as being sent.
-- MATERIALIZED, because a subquery with a LIMIT may run again and lock more rows than that.
WITH fence AS MATERIALIZED (
    SELECT token FROM @lease
    WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s
    FOR KEY SHARE
),
in_window AS MATERIALIZED (
    SELECT seq, key FROM @queue
    WHERE lane = %(lane)s AND state = 0
    ORDER BY seq
    LIMIT greatest(4 * %(limit)s::integer, 4000)
),
due AS MATERIALIZED (
    SELECT seq, key FROM @queue
    WHERE lane = %(lane)s AND state IN (1, 2, 5) AND due_at <= statement_timestamp()
    ORDER BY due_at
    LIMIT greatest(4 * %(limit)s::integer, 4000)
),
head AS MATERIALIZED (
    SELECT DISTINCT ON (first.key) first.seq, first.key
    FROM (SELECT seq, key FROM due UNION ALL SELECT seq, key FROM in_window) AS first
    ORDER BY first.key, first.seq
),
free AS MATERIALIZED (
    SELECT head.seq FROM head
    WHERE (SELECT b.seq FROM @queue AS b
           WHERE b.lane = %(lane)s AND b.key = head.key AND b.seq < head.seq
             AND b.state IN (1, 3, 4, 5)
           ORDER BY b.lane, b.key, b.seq LIMIT 1) IS NULL
      AND EXISTS (SELECT FROM fence)
),
chosen AS MATERIALIZED (
    SELECT q.seq FROM @queue AS q
    WHERE q.lane = %(lane)s
      AND q.seq = ANY (ARRAY(SELECT free.seq FROM free))
      AND (q.state = 0 OR (q.state IN (1, 2, 5) AND q.due_at <= statement_timestamp()))
    ORDER BY q.seq
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE @queue AS q
    SET state = 5,
        claim_token = %(token)s,
        due_at = clock_timestamp() + %(claim_seconds)s * interval '1 second'
    WHERE q.lane = %(lane)s AND q.seq = ANY (ARRAY(SELECT chosen.seq FROM chosen))
    RETURNING q.seq, q.key, q.bucket, q.state, q.attempts
)
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts, false,
    e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
    e.content_type, e.headers::text, e.idempotency_key,
    replace((e.created_at AT TIME ZONE 'UTC')::text, ' ', 'T') || 'Z'
FROM claimed AS q
CROSS JOIN LATERAL (SELECT * FROM @event WHERE seq = q.seq OFFSET 0) AS e;

-- park_blocked: pending events at the front of the queue whose key is blocked leave it.
WITH in_window AS MATERIALIZED (
    SELECT seq, key FROM @queue
    WHERE lane = %(lane)s AND state = 0
    ORDER BY seq
    LIMIT greatest(4 * %(limit)s::integer, 4000)
),
blocked AS MATERIALIZED (
    SELECT in_window.seq FROM in_window
    WHERE (SELECT b.seq FROM @queue AS b
           WHERE b.lane = %(lane)s AND b.key = in_window.key AND b.seq < in_window.seq
             AND b.state IN (1, 3, 4, 5) AND b.state <> 5
           ORDER BY b.lane DESC, b.key DESC, b.seq DESC LIMIT 1) IS NOT NULL
)
UPDATE @queue AS q
SET state = 3
WHERE q.lane = %(lane)s
  AND q.seq = ANY (ARRAY(SELECT blocked.seq FROM blocked))
  AND q.state + 0 = 0
  AND (SELECT token FROM @lease
       WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s
       FOR KEY SHARE) IS NOT NULL;

-- lock_fence: one row if the lease still exists, which stays so until this transaction ends.
SELECT token FROM @lease
WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s
FOR KEY SHARE;

-- settle_delivered: events leave the queue and enter the journal, if the lease still exists.
-- A competing relay may only touch what it has claimed, the others what nobody has.
WITH fence AS MATERIALIZED (
    SELECT CASE strategy WHEN 'competing' THEN token ELSE 0 END AS claim_token
    FROM @lease
    WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s
    FOR KEY SHARE
),
gone AS (
    DELETE FROM @queue
    WHERE lane = %(lane)s
      AND seq = ANY (%(seqs)s::bigint[])
      AND claim_token = (SELECT claim_token FROM fence)
    RETURNING seq
),
journal AS (
    INSERT INTO @delivery (smallest, largest, lane, events, verdict, relay, seqs)
    SELECT min(seq), max(seq), %(lane)s, count(*), 0, %(relay)s, array_agg(seq)
    FROM gone
    HAVING count(*) > 0
    RETURNING events
)
SELECT (SELECT count(*) FROM fence), coalesce((SELECT events FROM journal), 0);

-- settle_failures: refused events become retrying or dead, with one attempt more, written down.
WITH failed AS (
    UPDATE @queue AS q
    SET state = CASE WHEN f.retry_in IS NOT NULL THEN 1 WHEN f.blocks THEN 4 ELSE 6 END,
        attempts = q.attempts + 1,
        due_at = clock_timestamp() + f.retry_in * interval '1 second',
        last_error = f.error,
        claim_token = 0
    FROM json_to_recordset(%(failures)s::json)
        AS f (seq bigint, error text, retry_in double precision, blocks boolean, attempts integer)
    WHERE q.lane = %(lane)s
      AND q.seq = ANY (%(seqs)s::bigint[])
      AND q.seq = f.seq
      AND q.attempts = coalesce(f.attempts, q.attempts)
      AND q.claim_token = (SELECT CASE strategy WHEN 'competing' THEN token ELSE 0 END
                           FROM @lease
                           WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s)
    RETURNING q.seq, q.attempts, q.last_error
)
INSERT INTO @attempt (seq, lane, attempt, relay, error)
SELECT seq, %(lane)s, attempts, %(relay)s, last_error FROM failed;

-- settle_released: claimed events become pending again with no attempt spent.
UPDATE @queue
SET state = 0, due_at = NULL, claim_token = 0
WHERE lane = %(lane)s
  AND seq = ANY (%(seqs)s::bigint[])
  AND state + 0 = 5
  AND claim_token = (SELECT token FROM @lease
                     WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s);

-- settle_parked: events that wait behind a blocked one of their key leave the hot scan.
UPDATE @queue AS q
SET state = 3, due_at = NULL
WHERE q.lane = %(lane)s
  AND q.seq = ANY (%(seqs)s::bigint[])
  AND (q.state = 0 OR (q.state IN (1, 2) AND q.due_at <= statement_timestamp()))
  AND (SELECT b.seq FROM @queue AS b
       WHERE b.lane = %(lane)s AND b.key = q.key AND b.seq < q.seq AND b.state IN (1, 3, 4, 5)
       ORDER BY b.lane DESC, b.key DESC, b.seq DESC LIMIT 1) IS NOT NULL
  AND EXISTS (SELECT FROM @lease
              WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s);

-- take_claimed: those of these events that a direct pass has claimed and committed.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts, false,
    e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
    e.content_type, e.headers::text, e.idempotency_key,
    replace((e.created_at AT TIME ZONE 'UTC')::text, ' ', 'T') || 'Z'
FROM unnest(%(ids)s::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (SELECT * FROM @event WHERE id = wanted.id OFFSET 0) AS e
CROSS JOIN LATERAL (SELECT * FROM @queue WHERE seq = e.seq AND lane = %(lane)s OFFSET 0) AS q
WHERE q.state = 5 AND q.claim_token = %(token)s;

-- pass_delivered: claimed events leave the queue and enter the journal, if the claim still holds.
WITH gone AS (
    DELETE FROM @queue
    WHERE lane = %(lane)s
      AND seq = ANY (%(seqs)s::bigint[])
      AND state + 0 = 5
      AND claim_token = %(token)s
    RETURNING seq
)
INSERT INTO @delivery (smallest, largest, lane, events, verdict, relay, seqs)
SELECT min(seq), max(seq), %(lane)s, count(*), 0, %(relay)s, array_agg(seq)
FROM gone
HAVING count(*) > 0
RETURNING events;

-- pass_released: claimed events are the relay's, at once and with no attempt spent.
-- As retrying ones, which hold their key back: a sweep may have read past them.
UPDATE @queue
SET state = 1, due_at = clock_timestamp(), claim_token = 0, last_error = %(error)s::text
WHERE lane = %(lane)s
  AND seq = ANY (%(seqs)s::bigint[])
  AND state + 0 = 5
  AND claim_token = %(token)s;

-- pass_parked: claimed events that follow a released one of their key wait behind it.
UPDATE @queue
SET state = 3, due_at = NULL, claim_token = 0
WHERE lane = %(lane)s
  AND seq = ANY (%(seqs)s::bigint[])
  AND state + 0 = 5
  AND claim_token = %(token)s;

-- unpark: the first parked events of each key that nothing else blocks become pending.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step. Claims
-- that have expired end here too: of a direct pass that died, or of another strategy.
WITH RECURSIVE fence AS MATERIALIZED (
    SELECT token FROM @lease
    WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s
    FOR KEY SHARE
),
head (key, seq, state, bucket) AS (
    (SELECT q.key, q.seq, q.state, q.bucket FROM @queue AS q
     WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5)
     ORDER BY q.lane, q.key, q.seq LIMIT 1)
    UNION ALL
    SELECT following.* FROM head
    CROSS JOIN LATERAL (
        SELECT q.key, q.seq, q.state, q.bucket FROM @queue AS q
        WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5) AND q.key > head.key
        ORDER BY q.lane, q.key, q.seq LIMIT 1
    ) AS following
),
parked AS MATERIALIZED (
    SELECT rest.seq
    FROM (SELECT key FROM head
          WHERE state = 3
            AND (%(buckets)s::smallint[] IS NULL OR bucket = ANY (%(buckets)s::smallint[]))
          LIMIT %(limit)s) AS freed
    CROSS JOIN LATERAL (
        SELECT front.seq, bool_and(front.state = 3) OVER (ORDER BY front.seq) AS is_free
        FROM (SELECT q.seq, q.state FROM @queue AS q
              WHERE q.lane = %(lane)s AND q.key = freed.key AND q.state IN (1, 3, 4, 5)
              ORDER BY q.lane, q.key, q.seq LIMIT %(limit)s) AS front
    ) AS rest
    WHERE rest.is_free
    LIMIT %(limit)s
),
unparked AS (
    UPDATE @queue AS q
    SET state = 0
    WHERE q.lane = %(lane)s AND q.seq = ANY (ARRAY(SELECT parked.seq FROM parked))
      AND q.state + 0 = 3
      AND EXISTS (SELECT FROM fence)
    RETURNING q.seq
),
abandoned AS MATERIALIZED (
    SELECT q.seq FROM @queue AS q
    WHERE q.lane = %(lane)s AND q.state IN (1, 2, 5) AND q.state = 5
      AND q.due_at <= statement_timestamp()
    ORDER BY q.due_at LIMIT %(limit)s
),
released AS (
    UPDATE @queue AS q
    SET state = 0, due_at = NULL, claim_token = 0
    WHERE q.lane = %(lane)s
      AND q.seq = ANY (ARRAY(SELECT abandoned.seq FROM abandoned))
      AND q.state + 0 = 5
      AND (%(buckets)s::smallint[] IS NULL OR q.bucket = ANY (%(buckets)s::smallint[]))
      AND EXISTS (SELECT FROM fence)
    RETURNING q.seq
)
SELECT (SELECT count(*) FROM fence),
       (SELECT count(*) FROM unparked) + (SELECT count(*) FROM released);

-- has_work: whether anything is pending, retrying, claimed, due, or parked behind nothing.
SELECT EXISTS (SELECT FROM @queue WHERE lane = %(lane)s AND state = 0)
    OR EXISTS (SELECT FROM @queue
               WHERE lane = %(lane)s AND state IN (1, 2, 5) AND due_at <= statement_timestamp())
    OR EXISTS (SELECT FROM @queue
               WHERE lane = %(lane)s AND state IN (1, 2, 5) AND state IN (1, 5));

-- has_unblocked: whether some key's first blocking event is merely parked.
WITH RECURSIVE head (key, state) AS (
    (SELECT q.key, q.state FROM @queue AS q
     WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5)
     ORDER BY q.lane, q.key, q.seq LIMIT 1)
    UNION ALL
    SELECT following.* FROM head
    CROSS JOIN LATERAL (
        SELECT q.key, q.state FROM @queue AS q
        WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5) AND q.key > head.key
        ORDER BY q.lane, q.key, q.seq LIMIT 1
    ) AS following
)
SELECT EXISTS (SELECT FROM head WHERE state = 3);

-- lock_lane: lets one relay at a time change who owns what in the lane.
SELECT paused FROM @lane WHERE id = %(lane)s FOR NO KEY UPDATE;

-- remove_expired_leases: of the other relays in the lane; one that is settling right now stays.
DELETE FROM @lease
WHERE lane = %(lane)s AND relay IN (
    SELECT relay FROM @lease
    WHERE lane = %(lane)s AND relay <> %(relay)s AND expires_at < clock_timestamp()
    FOR UPDATE SKIP LOCKED);

-- renew_lease: extend a lease and give some buckets up, or join with none and a new token.
INSERT INTO @lease AS mine (lane, relay, token, strategy, expires_at)
VALUES (%(lane)s, %(relay)s, nextval('@token'), %(strategy)s,
        clock_timestamp() + %(lease_seconds)s * interval '1 second')
ON CONFLICT (lane, relay) DO UPDATE
SET strategy = excluded.strategy,
    expires_at = excluded.expires_at,
    buckets = CASE
        WHEN %(keep)s::smallint[] IS NULL THEN mine.buckets
        ELSE ARRAY(SELECT unnest(mine.buckets) INTERSECT SELECT unnest(%(keep)s::smallint[])
                   ORDER BY 1)
    END;

-- lane_leases: everybody in the lane.
SELECT relay, token, buckets, strategy FROM @lease WHERE lane = %(lane)s;

-- acquire: add those buckets that nobody else holds.
UPDATE @lease AS mine
SET buckets = ARRAY(
    SELECT unnest(mine.buckets)
    UNION
    (SELECT unnest(%(buckets)s::smallint[])
     EXCEPT
     SELECT unnest(other.buckets) FROM @lease AS other
     WHERE other.lane = %(lane)s AND other.relay <> %(relay)s)
    ORDER BY 1)
WHERE mine.lane = %(lane)s AND mine.relay = %(relay)s AND mine.token = %(token)s
RETURNING mine.buckets;

-- leave_lane: give a lease up.
DELETE FROM @lease WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s;

-- remove_expired_circuits: of relays that died while they held off.
DELETE FROM @circuit
WHERE (lane, relay) IN (
    SELECT lane, relay FROM @circuit
    WHERE expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED);

-- open_circuit: a relay holds off from its broker, and stands by that for some time.
INSERT INTO @circuit (lane, relay, opened_at, error, expires_at)
VALUES (%(lane)s, %(relay)s, clock_timestamp() - %(open_seconds)s * interval '1 second', %(error)s,
        clock_timestamp() + %(valid_seconds)s * interval '1 second')
ON CONFLICT (lane, relay) DO UPDATE
SET opened_at = excluded.opened_at, error = excluded.error, expires_at = excluded.expires_at;

-- close_circuit: a relay does not hold off any more.
DELETE FROM @circuit WHERE lane = %(lane)s AND relay = %(relay)s;

-- purge_inbox: delete the oldest marks.
DELETE FROM @inbox
WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM @inbox AS i
    WHERE i.done_at < (SELECT clock_timestamp() - %(older_than_seconds)s * interval '1 second')
    ORDER BY i.done_at
    LIMIT %(limit)s));

-- gate: the number of the advisory locks by which this outbox's relays say that they sleep.
SELECT hashtext('commitrelay ' || '@event'::regclass::oid);

-- close_gate: say that this relay sleeps, so that writers notify it.
SELECT pg_try_advisory_lock(%(gate)s::integer, %(lane)s::integer);

-- open_gate: say that this relay is awake; another one that sleeps may close the gate.
SELECT pg_advisory_unlock(%(gate)s::integer, %(lane)s::integer),
       pg_notify(%(channel)s, (%(lane)s::integer)::text);

-- lock_schema: one process at a time creates or migrates this outbox.
SELECT pg_advisory_xact_lock(hashtextextended('commitrelay init ' || %(outbox)s, 0));

-- schema_exists: whether there is a schema of this name.
SELECT to_regnamespace(quote_ident(%(schema)s)) IS NOT NULL;

-- create_schema: {schema} is filled in as a quoted name.
CREATE SCHEMA {schema};

-- migration_table_exists: whether this outbox was ever initialised.
SELECT to_regclass('@migration') IS NOT NULL;

-- schema_version: the number of the newest migration.
SELECT coalesce(max(number), 0) FROM @migration;

-- record_migration: remember that a migration was applied.
INSERT INTO @migration (number, name) VALUES (%(number)s, %(name)s) ON CONFLICT DO NOTHING;

-- find_lane: a lane by its name.
SELECT id, name, paused FROM @lane WHERE name = %(name)s;

-- add_lane: a new lane.
INSERT INTO @lane (name, aggregate_types, event_types)
VALUES (%(name)s, %(aggregate_types)s::text[], %(event_types)s::text[])
ON CONFLICT (name) DO NOTHING
RETURNING id, name, paused;

-- set_paused: turn a lane's switch.
UPDATE @lane SET paused = %(paused)s WHERE name = %(name)s;

-- lane_status: the lanes at a glance; counting stops at a cap.
SELECT
    lane.id, lane.name, lane.paused,
    (SELECT count(*) FROM (SELECT FROM @queue
        WHERE lane = lane.id AND state = 0 LIMIT %(cap)s) AS capped),
    EXTRACT(epoch FROM clock_timestamp() - (
        SELECT min(e.created_at) FROM @event AS e WHERE e.seq IN (
            (SELECT q.seq FROM @queue AS q
             WHERE q.lane = lane.id AND q.state = 0 ORDER BY q.lane, q.seq LIMIT 1)
            UNION ALL
            (SELECT min(capped.seq) FROM (SELECT q.seq FROM @queue AS q
             WHERE q.lane = lane.id AND q.state IN (1, 2, 5) AND q.state = 1
             LIMIT %(cap)s) AS capped))))::double precision,
    (SELECT coalesce(sum(d.events), 0)::bigint FROM @delivery AS d
     WHERE d.lane = lane.id AND d.verdict = 0
       AND d.at >= statement_timestamp() - interval '1 minute'),
    (SELECT d.at FROM @delivery AS d
     WHERE d.lane = lane.id AND d.verdict = 0 ORDER BY d.at DESC LIMIT 1),
    coalesce(
        (SELECT q.last_error FROM @queue AS q
         WHERE q.lane = lane.id AND q.state IN (1, 2, 5) AND q.state = 1
         ORDER BY q.due_at DESC LIMIT 1),
        (SELECT q.last_error FROM @queue AS q
         WHERE q.lane = lane.id AND q.state IN (4, 6)
         ORDER BY q.seq DESC LIMIT 1))
FROM @lane AS lane
ORDER BY lane.id;

-- lane_counts: events of a lane that are not pending, by state; counting stops at a cap.
SELECT state, count(*)
FROM (
    (SELECT state FROM @queue
     WHERE lane = %(lane)s AND state IN (1, 2, 5) LIMIT %(cap)s)
    UNION ALL
    (SELECT state FROM @queue
     WHERE lane = %(lane)s AND state IN (4, 6) LIMIT %(cap)s)
    UNION ALL
    (SELECT state FROM @queue
     WHERE lane = %(lane)s AND state IN (1, 3, 4, 5) AND state = 3 LIMIT %(cap)s)
) AS capped
GROUP BY state;

-- lane_relays: who holds leases in a lane that have not expired.
SELECT relay, cardinality(buckets),
       EXTRACT(epoch FROM expires_at - clock_timestamp())::double precision
FROM @lease
WHERE lane = %(lane)s AND expires_at > clock_timestamp()
ORDER BY relay;

-- lane_circuits: who holds off in a lane, for how many seconds, and why.
SELECT relay, EXTRACT(epoch FROM clock_timestamp() - opened_at)::double precision, error
FROM @circuit
WHERE lane = %(lane)s AND expires_at > clock_timestamp()
ORDER BY relay;

-- list_events: events of the log that match, newest first.
SELECT e.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq < %(before_seq)s
  AND e.seq > %(above_seq)s
  AND (%(aggregate_type)s::text IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s::text IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s::timestamptz IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR e.created_at < %(until)s)
  AND (%(lane)s::integer IS NULL
       OR EXISTS (SELECT FROM @queue AS q WHERE q.lane = %(lane)s AND q.seq = e.seq)
       OR EXISTS (SELECT FROM @delivery AS d
                  WHERE int8range(d.smallest, d.largest, '[]') @> e.seq
                    AND d.lane = %(lane)s AND e.seq = ANY (d.seqs)))
ORDER BY e.seq DESC
LIMIT %(limit)s;

-- list_queued: events in one of these states that match, newest first.
-- {states} is filled in as literal numbers, so that the planner knows the partial index for them.
SELECT e.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM (
    SELECT DISTINCT listed.seq
    FROM @lane AS lane
    CROSS JOIN LATERAL (
        SELECT q.seq FROM @queue AS q
        JOIN @event AS e ON e.seq = q.seq
        WHERE q.lane = lane.id
          AND q.seq < %(before_seq)s
          AND q.seq > %(above_seq)s
          AND q.state IN ({states})
          AND (%(error)s::text IS NULL
               OR position(lower(%(error)s) IN lower(q.last_error)) > 0)
          AND (%(aggregate_type)s::text IS NULL OR e.aggregate_type = %(aggregate_type)s)
          AND (%(aggregate_id)s::text IS NULL OR e.aggregate_id = %(aggregate_id)s)
          AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s)
          AND (%(since)s::timestamptz IS NULL OR e.created_at >= %(since)s)
          AND (%(until)s::timestamptz IS NULL OR e.created_at < %(until)s)
        ORDER BY q.seq DESC
        LIMIT %(limit)s
    ) AS listed
    WHERE %(lane)s::integer IS NULL OR lane.id = %(lane)s
) AS found
JOIN @event AS e ON e.seq = found.seq
ORDER BY e.seq DESC
LIMIT %(limit)s;

-- list_settled: events that left a lane's queue with this verdict and match, newest first.
-- What was added after the newest settled event, such as a long backlog, is not looked at.
SELECT e.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq < %(before_seq)s
  AND e.seq <= (SELECT d.largest FROM @delivery AS d ORDER BY d.largest DESC LIMIT 1)
  AND e.seq > %(above_seq)s
  AND (%(aggregate_type)s::text IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s::text IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s::timestamptz IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR e.created_at < %(until)s)
  AND EXISTS (
    SELECT FROM @delivery AS d
    WHERE int8range(d.smallest, d.largest, '[]') @> e.seq
      AND e.seq = ANY (d.seqs)
      AND d.verdict = %(verdict)s
      AND (%(lane)s::integer IS NULL OR d.lane = %(lane)s)
      AND NOT EXISTS (SELECT FROM @queue AS q WHERE q.lane = d.lane AND q.seq = e.seq))
ORDER BY e.seq DESC
LIMIT %(limit)s;

-- show_event: one event of the log with its payload.
SELECT e.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, e.payload
FROM @event AS e
WHERE e.id = %(id)s::uuid;

-- completed_rows: when these events were completed, if they were.
SELECT e.seq, c.completed_at FROM @event AS e JOIN @completion AS c ON c.event_id = e.id
WHERE e.seq = ANY (%(seqs)s::bigint[]) AND c.completed_at IS NOT NULL;

-- queue_rows: where events stand in the lanes that still have them.
SELECT q.seq, lane.name, q.state, q.attempts, q.due_at, q.last_error,
       (SELECT b.seq FROM @queue AS b
        WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq AND b.state IN (1, 3, 4, 5)
        ORDER BY b.lane, b.key, b.seq LIMIT 1)
FROM @lane AS lane
JOIN @queue AS q ON q.lane = lane.id
WHERE q.seq = ANY (%(seqs)s::bigint[])
ORDER BY q.seq, lane.id;

-- journal_rows: how events left the lanes that do not have them any more, latest last.
SELECT s.seq, lane.name, d.verdict, d.at, d.relay
FROM unnest(%(seqs)s::bigint[]) AS s (seq)
JOIN @delivery AS d
    ON int8range(d.smallest, d.largest, '[]') @> s.seq AND s.seq = ANY (d.seqs)
JOIN @lane AS lane ON lane.id = d.lane
WHERE NOT EXISTS (SELECT FROM @queue AS q WHERE q.lane = d.lane AND q.seq = s.seq)
ORDER BY s.seq, lane.id, d.id;
