-- The queries of the MySQL store. Only the database's clock is used, in UTC. Lists of numbers are
-- filled in as literals. The optimiser knows little of a queue that was empty a minute ago, so each
-- index is named, and STRAIGHT_JOIN keeps the order of the tables.

-- begin_snapshot: the next transaction sees what is committed now, and nothing since.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- begin_sweep: one snapshot for all claims of a sweep.
START TRANSACTION READ ONLY;

-- end_sweep: let the snapshot go.
COMMIT;

-- claim_pending: pending events of the leased buckets above the read-ahead floor, in seq order.
-- Whether anything blocks at all is asked once: mostly nothing does, and no key is looked up.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts,
    (EXISTS (SELECT 1 FROM @queue AS x FORCE INDEX (@@queue_blockers)
             WHERE x.lane = %(lane)s AND x.blocking_key IS NOT NULL)
     AND EXISTS (SELECT 1 FROM @queue AS b FORCE INDEX (@@queue_blockers)
                 WHERE b.lane = %(lane)s AND b.blocking_key = q.key AND b.seq < q.seq)),
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
    e.content_type, e.headers, e.idempotency_key,
    concat(replace(CAST(e.created_at AS CHAR), ' ', 'T'), 'Z')
FROM @queue AS q FORCE INDEX (@@queue_hot)
STRAIGHT_JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = %(lane)s
  AND q.state = 0
  AND q.seq > %(above_seq)s
  AND q.bucket IN (%(buckets)s)
  AND q.seq NOT IN (%(exclude_seqs)s)
  AND q.key NOT IN (%(exclude_keys)s)
ORDER BY q.seq
LIMIT %(limit)s;

-- claim_due: events of the leased buckets whose retry or delivery time has come.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts,
    EXISTS (SELECT 1 FROM @queue AS b FORCE INDEX (@@queue_blockers)
            WHERE b.lane = %(lane)s AND b.blocking_key = q.key AND b.seq < q.seq),
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
    e.content_type, e.headers, e.idempotency_key,
    concat(replace(CAST(e.created_at AS CHAR), ' ', 'T'), 'Z')
FROM @queue AS q FORCE INDEX (@@queue_due)
STRAIGHT_JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = %(lane)s
  AND q.due_at <= utc_timestamp(6)
  AND q.state IN (1, 2)
  AND q.bucket IN (%(buckets)s)
  AND q.seq NOT IN (%(exclude_seqs)s)
  AND q.key NOT IN (%(exclude_keys)s)
ORDER BY q.due_at
LIMIT %(limit)s;

-- find_heads: the first deliverable event of each key near the front of the queue.
SELECT head.seq
FROM (
    SELECT min(front.seq) AS seq, front.k AS k
    FROM (
        (SELECT d.seq AS seq, d.key AS k FROM @queue AS d FORCE INDEX (@@queue_due)
         WHERE d.lane = %(lane)s AND d.due_at <= utc_timestamp(6) AND d.state IN (1, 2, 5)
         ORDER BY d.due_at LIMIT %(window)s)
        UNION ALL
        (SELECT p.seq, p.key FROM @queue AS p FORCE INDEX (@@queue_hot)
         WHERE p.lane = %(lane)s AND p.state = 0
         ORDER BY p.seq LIMIT %(window)s)
    ) AS front
    GROUP BY front.k
) AS head
WHERE NOT EXISTS (SELECT 1 FROM @queue AS b FORCE INDEX (@@queue_blockers)
                  WHERE b.lane = %(lane)s AND b.blocking_key = head.k AND b.seq < head.seq)
ORDER BY head.seq
LIMIT %(limit)s;

-- mark_heads: claim those of the events found that nobody else has claimed since.
UPDATE @queue AS q FORCE INDEX (PRIMARY)
SET q.state = 5, q.claim_token = %(token)s,
    q.due_at = utc_timestamp(6) + INTERVAL %(claim_seconds)s SECOND
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND (q.state = 0 OR (q.state IN (1, 2, 5) AND q.due_at <= utc_timestamp(6)))
  AND EXISTS (SELECT 1 FROM @lease AS fence
              WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                AND fence.token = %(token)s);

-- claimed_heads: the events that this relay has claimed among those found.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts, 0,
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
    e.content_type, e.headers, e.idempotency_key,
    concat(replace(CAST(e.created_at AS CHAR), ' ', 'T'), 'Z')
FROM @queue AS q FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = %(lane)s AND q.seq IN (%(seqs)s) AND q.state = 5 AND q.claim_token = %(token)s
ORDER BY q.seq;

-- find_blocked: pending events at the front of the queue whose key is blocked for longer.
SELECT front.seq
FROM (SELECT p.seq AS seq, p.key AS k FROM @queue AS p FORCE INDEX (@@queue_hot)
      WHERE p.lane = %(lane)s AND p.state = 0
      ORDER BY p.seq LIMIT %(window)s) AS front
WHERE EXISTS (SELECT 1 FROM @queue AS b FORCE INDEX (@@queue_blockers)
              WHERE b.lane = %(lane)s AND b.blocking_key = front.k AND b.seq < front.seq
                AND b.state <> 5);

-- holds_lease: one row if the lease still exists.
SELECT token FROM @lease WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s;

-- lock_fence: one row if the lease still exists, which stays so until this transaction ends.
SELECT token FROM @lease
WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s
LOCK IN SHARE MODE;

-- journal: write down which of the delivered events are still in the queue, and keep them there
-- for settle_delivered. A competing relay may only touch what it has claimed, the others what
-- nobody has.
INSERT INTO @delivery (page, smallest, largest, at, lane, events, verdict, relay, seqs)
SELECT q.seq >> 12, min(q.seq), max(q.seq), utc_timestamp(6), %(lane)s, count(*), 0, %(relay)s,
       group_concat(q.seq ORDER BY q.seq)
FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.claim_token = (SELECT CASE fence.strategy WHEN 'competing' THEN fence.token ELSE 0 END
                       FROM @lease AS fence
                       WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                         AND fence.token = %(token)s)
GROUP BY q.seq >> 12
FOR UPDATE;

-- settle_delivered: events leave the queue.
DELETE q FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.claim_token = (SELECT CASE fence.strategy WHEN 'competing' THEN fence.token ELSE 0 END
                       FROM @lease AS fence
                       WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                         AND fence.token = %(token)s);

-- note_failure: write an attempt down that settle_failure is going to count.
INSERT INTO @attempt (seq, lane, attempt, relay, error)
SELECT q.seq, q.lane, q.attempts + 1, %(relay)s, %(error)s
FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s AND q.seq = %(seq)s
  AND q.attempts = coalesce(%(attempts)s, q.attempts)
  AND q.claim_token = (SELECT CASE fence.strategy WHEN 'competing' THEN fence.token ELSE 0 END
                       FROM @lease AS fence
                       WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                         AND fence.token = %(token)s)
FOR UPDATE;

-- settle_failure: a refused event becomes retrying or dead, with one attempt more.
UPDATE @queue AS q FORCE INDEX (PRIMARY)
SET q.state = %(state)s, q.attempts = q.attempts + 1, q.last_error = %(error)s,
    q.due_at = utc_timestamp(6) + INTERVAL %(retry_in)s SECOND, q.claim_token = 0
WHERE q.lane = %(lane)s AND q.seq = %(seq)s
  AND q.attempts = coalesce(%(attempts)s, q.attempts)
  AND q.claim_token = (SELECT CASE fence.strategy WHEN 'competing' THEN fence.token ELSE 0 END
                       FROM @lease AS fence
                       WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                         AND fence.token = %(token)s);

-- settle_released: claimed events become pending again with no attempt spent.
UPDATE @queue AS q FORCE INDEX (PRIMARY)
SET q.state = 0, q.due_at = NULL, q.claim_token = 0
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.state = 5
  AND q.claim_token = (SELECT fence.token FROM @lease AS fence
                       WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                         AND fence.token = %(token)s);

-- settle_parked: events that wait behind a blocked one of their key leave the hot scan.
-- DISTINCT makes a table of its own of the inner part: MySQL may not update what it reads.
UPDATE (
    SELECT DISTINCT w.seq AS seq FROM @queue AS w FORCE INDEX (PRIMARY)
    WHERE w.lane = %(lane)s
      AND w.seq IN (%(seqs)s)
      AND EXISTS (SELECT 1 FROM @queue AS b FORCE INDEX (@@queue_blockers)
                  WHERE b.lane = %(lane)s AND b.blocking_key = w.key AND b.seq < w.seq)
      AND EXISTS (SELECT 1 FROM @lease AS fence
                  WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                    AND fence.token = %(token)s)
) AS blocked
STRAIGHT_JOIN @queue AS q FORCE INDEX (PRIMARY) ON q.seq = blocked.seq AND q.lane = %(lane)s
SET q.state = 3, q.due_at = NULL
WHERE q.state = 0 OR (q.state IN (1, 2) AND q.due_at <= utc_timestamp(6));

-- unblocked_keys: keys of the leased buckets whose first blocking event is merely parked.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step.
WITH RECURSIVE blocked (k) AS (
    SELECT (SELECT q.blocking_key FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key >= 0
            ORDER BY q.blocking_key LIMIT 1) AS k
    UNION ALL
    SELECT (SELECT q.blocking_key FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key > blocked.k
            ORDER BY q.blocking_key LIMIT 1)
    FROM blocked
    WHERE blocked.k IS NOT NULL
)
SELECT head.key
FROM (
    SELECT (SELECT q.seq FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key = blocked.k
            ORDER BY q.seq LIMIT 1) AS seq
    FROM blocked
    WHERE blocked.k IS NOT NULL
) AS first
STRAIGHT_JOIN @queue AS head FORCE INDEX (PRIMARY)
    ON head.seq = first.seq AND head.lane = %(lane)s
WHERE head.state = 3 AND head.bucket IN (%(buckets)s)
LIMIT %(limit)s;

-- blocking_events: the first blocking events of one key.
(SELECT q.key, q.seq, q.state FROM @queue AS q FORCE INDEX (@@queue_blockers)
 WHERE q.lane = %(lane)s AND q.blocking_key = %(key)s
 ORDER BY q.seq LIMIT %(limit)s);

-- unpark: parked events become pending.
UPDATE @queue AS q FORCE INDEX (PRIMARY)
SET q.state = 0
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.state = 3
  AND EXISTS (SELECT 1 FROM @lease AS fence
              WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                AND fence.token = %(token)s);

-- find_abandoned: claims that have expired, for relays that do not claim (the strategy was changed).
SELECT q.seq FROM @queue AS q FORCE INDEX (@@queue_due)
WHERE q.lane = %(lane)s AND q.due_at <= utc_timestamp(6) AND q.state = 5
  AND q.bucket IN (%(buckets)s)
ORDER BY q.due_at LIMIT %(limit)s;

-- free_abandoned: events whose claim has expired become pending.
UPDATE @queue AS q FORCE INDEX (PRIMARY)
SET q.state = 0, q.due_at = NULL, q.claim_token = 0
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.state = 5
  AND q.due_at <= utc_timestamp(6)
  AND EXISTS (SELECT 1 FROM @lease AS fence
              WHERE fence.lane = %(lane)s AND fence.relay = %(relay)s
                AND fence.token = %(token)s);

-- has_work: whether anything is pending, retrying, claimed or due.
SELECT EXISTS (SELECT 1 FROM @queue AS q FORCE INDEX (@@queue_hot)
               WHERE q.lane = %(lane)s AND q.state IN (0, 1, 5))
    OR EXISTS (SELECT 1 FROM @queue AS q FORCE INDEX (@@queue_due)
               WHERE q.lane = %(lane)s AND q.due_at <= utc_timestamp(6));

-- lock_leases: lets one relay at a time change who owns what in the lane.
SELECT relay FROM @lease WHERE lane = %(lane)s ORDER BY relay FOR UPDATE;

-- lane_paused: the lane's switch.
SELECT paused FROM @lane WHERE id = %(lane)s;

-- remove_expired_leases: of the other relays in the lane.
DELETE FROM @lease
WHERE lane = %(lane)s AND relay <> %(relay)s AND expires_at < utc_timestamp(6);

-- renew_lease: extend a lease and give some buckets up, or join with none and a new token.
INSERT INTO @lease (lane, relay, strategy, expires_at)
VALUES (%(lane)s, %(relay)s, %(strategy)s, utc_timestamp(6) + INTERVAL %(lease_seconds)s SECOND)
ON DUPLICATE KEY UPDATE
    strategy = %(strategy)s,
    expires_at = utc_timestamp(6) + INTERVAL %(lease_seconds)s SECOND,
    buckets = buckets & %(keep)s;

-- lane_leases: everybody in the lane.
SELECT relay, token, buckets, strategy FROM @lease WHERE lane = %(lane)s;

-- acquire: add those buckets that nobody else holds.
UPDATE @lease AS mine
JOIN (SELECT bit_or(other.buckets) AS taken FROM @lease AS other
      WHERE other.lane = %(lane)s AND other.relay <> %(relay)s) AS held
SET mine.buckets = mine.buckets | (%(buckets)s & ~held.taken)
WHERE mine.lane = %(lane)s AND mine.relay = %(relay)s AND mine.token = %(token)s;

-- own_buckets: what a relay holds.
SELECT buckets FROM @lease
WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s;

-- leave_lane: give a lease up.
DELETE FROM @lease WHERE lane = %(lane)s AND relay = %(relay)s AND token = %(token)s;

-- remove_expired_circuits: of relays that died while they held off.
DELETE FROM @circuit WHERE expires_at < utc_timestamp(6);

-- open_circuit: a relay holds off from its broker, and stands by that for some time.
INSERT INTO @circuit (lane, relay, opened_at, error, expires_at)
VALUES (%(lane)s, %(relay)s, utc_timestamp(6) - INTERVAL %(open_seconds)s SECOND, %(error)s,
        utc_timestamp(6) + INTERVAL %(valid_seconds)s SECOND)
ON DUPLICATE KEY UPDATE
    opened_at = utc_timestamp(6) - INTERVAL %(open_seconds)s SECOND,
    error = %(error)s,
    expires_at = utc_timestamp(6) + INTERVAL %(valid_seconds)s SECOND;

-- close_circuit: a relay does not hold off any more.
DELETE FROM @circuit WHERE lane = %(lane)s AND relay = %(relay)s;

-- purge_inbox: delete the oldest marks.
DELETE FROM @inbox
WHERE done_at < utc_timestamp(6) - INTERVAL %(older_than_seconds)s SECOND
ORDER BY done_at
LIMIT %(limit)s;

-- lock_schema: one process at a time creates or migrates this outbox.
SELECT get_lock(%(name)s, 30);

-- unlock_schema: let the next one go on.
SELECT release_lock(%(name)s);

-- migration_table_exists: whether this outbox was ever initialised.
SELECT 1 FROM information_schema.tables
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(table)s;

-- schema_version: the number of the newest migration.
SELECT coalesce(max(number), 0) FROM @migration;

-- record_migration: remember that a migration was applied.
INSERT INTO @migration (number, name) VALUES (%(number)s, %(name)s)
ON DUPLICATE KEY UPDATE number = %(number)s;

-- writer_enqueues: whether there is no trigger, so that whoever adds an event enqueues it too.
SELECT 1 FROM information_schema.columns
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(table)s
  AND column_name = 'enqueued';

-- make_writer_enqueue: from now on the log takes no event whose writer does not promise that.
ALTER TABLE @event ADD COLUMN enqueued BOOLEAN NOT NULL DEFAULT FALSE,
    ADD CONSTRAINT @@event_has_no_trigger_use_outbox_add CHECK (enqueued <> 0);

-- let_trigger_enqueue: the trigger does it now.
ALTER TABLE @event DROP CONSTRAINT @@event_has_no_trigger_use_outbox_add, DROP COLUMN enqueued;

-- find_lane: a lane by its name.
SELECT id, name, paused FROM @lane WHERE name = %(name)s;

-- add_lane: a new lane.
INSERT INTO @lane (name, aggregate_types, event_types)
VALUES (%(name)s, %(aggregate_types)s, %(event_types)s);

-- set_paused: turn a lane's switch.
UPDATE @lane SET paused = %(paused)s WHERE name = %(name)s;

-- lane_status: the lanes at a glance.
SELECT
    lane.id, lane.name, lane.paused,
    timestampdiff(MICROSECOND, least(
        coalesce((SELECT e.created_at FROM @queue AS q FORCE INDEX (@@queue_hot)
                  STRAIGHT_JOIN @event AS e ON e.seq = q.seq
                  WHERE q.lane = lane.id AND q.state = 0 ORDER BY q.seq LIMIT 1), '9999-01-01'),
        coalesce((SELECT e.created_at FROM @queue AS q FORCE INDEX (@@queue_hot)
                  STRAIGHT_JOIN @event AS e ON e.seq = q.seq
                  WHERE q.lane = lane.id AND q.state = 1 ORDER BY q.seq LIMIT 1), '9999-01-01')
    ), utc_timestamp(6)) / 1000000,
    (SELECT CAST(coalesce(sum(d.events), 0) AS SIGNED) FROM @delivery AS d
     WHERE d.lane = lane.id AND d.verdict = 0 AND d.at >= utc_timestamp(6) - INTERVAL 1 MINUTE),
    (SELECT d.at FROM @delivery AS d
     WHERE d.lane = lane.id AND d.verdict = 0 ORDER BY d.at DESC LIMIT 1),
    coalesce(
        (SELECT q.last_error FROM @queue AS q FORCE INDEX (@@queue_due)
         WHERE q.lane = lane.id AND q.due_at IS NOT NULL AND q.state = 1
         ORDER BY q.due_at DESC LIMIT 1),
        (SELECT q.last_error FROM @queue AS q FORCE INDEX (@@queue_hot)
         WHERE q.lane = lane.id AND q.state = 4 ORDER BY q.seq DESC LIMIT 1),
        (SELECT q.last_error FROM @queue AS q FORCE INDEX (@@queue_hot)
         WHERE q.lane = lane.id AND q.state = 6 ORDER BY q.seq DESC LIMIT 1))
FROM @lane AS lane
ORDER BY lane.id;

-- count_state: events of a lane in a state; counting stops at a cap.
SELECT count(*) FROM (SELECT 1 FROM @queue AS q FORCE INDEX (@@queue_hot)
                      WHERE q.lane = %(lane)s AND q.state = %(state)s LIMIT %(cap)s) AS capped;

-- lane_relays: who holds leases in a lane that have not expired.
SELECT relay, bit_count(buckets), timestampdiff(MICROSECOND, utc_timestamp(6), expires_at) / 1000000
FROM @lease
WHERE lane = %(lane)s AND expires_at > utc_timestamp(6)
ORDER BY relay;

-- lane_circuits: who holds off in a lane, for how many seconds, and why.
SELECT relay, timestampdiff(MICROSECOND, opened_at, utc_timestamp(6)) / 1000000, error
FROM @circuit
WHERE lane = %(lane)s AND expires_at > utc_timestamp(6)
ORDER BY relay;

-- list_events: events of the log that match, newest first.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq < %(before_seq)s
  AND e.seq > %(above_seq)s
  AND (%(aggregate_type)s IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s IS NULL OR e.created_at < %(until)s)
  AND (%(lane)s IS NULL
       OR EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = %(lane)s AND q.seq = e.seq)
       OR EXISTS (SELECT 1 FROM @delivery AS d
                  WHERE d.page = e.seq >> 12 AND d.lane = %(lane)s
                    AND find_in_set(e.seq, d.seqs)))
ORDER BY e.seq DESC
LIMIT %(limit)s;

-- list_queued: events in one of these states that match, newest first.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM (
    SELECT DISTINCT q.seq AS seq
    FROM @lane AS lane
    STRAIGHT_JOIN @queue AS q ON q.lane = lane.id
    STRAIGHT_JOIN @event AS found ON found.seq = q.seq
    WHERE (%(lane)s IS NULL OR lane.id = %(lane)s)
      AND q.state IN ({states})
      AND q.seq < %(before_seq)s
      AND q.seq > %(above_seq)s
      AND (%(error)s IS NULL OR instr(lower(q.last_error), lower(%(error)s)) > 0)
      AND (%(aggregate_type)s IS NULL OR found.aggregate_type = %(aggregate_type)s)
      AND (%(aggregate_id)s IS NULL OR found.aggregate_id = %(aggregate_id)s)
      AND (%(event_type)s IS NULL OR found.event_type = %(event_type)s)
      AND (%(since)s IS NULL OR found.created_at >= %(since)s)
      AND (%(until)s IS NULL OR found.created_at < %(until)s)
    ORDER BY q.seq DESC
    LIMIT %(limit)s
) AS listed
JOIN @event AS e ON e.seq = listed.seq
ORDER BY e.seq DESC;

-- list_settled: events that left a lane's queue with this verdict and match, newest first.
-- What was added after the newest settled event, such as a long backlog, is not looked at.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq < %(before_seq)s
  AND e.seq < ((SELECT max(d.page) FROM @delivery AS d) + 1) << 12
  AND e.seq > %(above_seq)s
  AND (%(aggregate_type)s IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s IS NULL OR e.created_at < %(until)s)
  AND EXISTS (
    SELECT 1 FROM @delivery AS d
    WHERE d.page = e.seq >> 12
      AND d.verdict = %(verdict)s
      AND (%(lane)s IS NULL OR d.lane = %(lane)s)
      AND find_in_set(e.seq, d.seqs)
      AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = d.lane AND q.seq = e.seq))
ORDER BY e.seq DESC
LIMIT %(limit)s;

-- show_event: one event of the log with its payload.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, e.payload
FROM @event AS e
WHERE e.id = %(id)s;

-- completed_rows: when these events were completed, if they were.
SELECT e.seq, c.completed_at
FROM @event AS e FORCE INDEX (PRIMARY) STRAIGHT_JOIN @completion AS c ON c.event_id = e.id
WHERE e.seq IN (%(seqs)s) AND c.completed_at IS NOT NULL;

-- queue_rows: where events stand in the lanes that still have them.
SELECT q.seq, lane.name, q.state, q.attempts, q.due_at, q.last_error,
       (SELECT b.seq FROM @queue AS b FORCE INDEX (@@queue_blockers)
        WHERE b.lane = q.lane AND b.blocking_key = q.key AND b.seq < q.seq
        ORDER BY b.seq LIMIT 1)
FROM @queue AS q FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @lane AS lane ON lane.id = q.lane
WHERE q.seq IN (%(seqs)s)
ORDER BY q.seq, lane.id;

-- journal_rows: how events left the lanes that do not have them any more, latest last.
SELECT e.seq, lane.name, d.verdict, d.at, d.relay
FROM @event AS e
STRAIGHT_JOIN @delivery AS d ON d.page = e.seq >> 12
STRAIGHT_JOIN @lane AS lane ON lane.id = d.lane
WHERE e.seq IN (%(seqs)s)
  AND find_in_set(e.seq, d.seqs)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = d.lane AND q.seq = e.seq)
ORDER BY e.seq, lane.id, d.id;
