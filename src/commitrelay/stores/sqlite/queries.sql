-- The queries of the SQLite store. `:now_ms` is the store's clock, in milliseconds since 1970.

-- claim_pending: pending events of the leased buckets above the read-ahead floor, in seq order.
-- Whether anything blocks at all is asked once: mostly nothing does, and no key is looked up.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts,
    EXISTS (SELECT 1 FROM @queue INDEXED BY @queue_blockers
            WHERE lane = :lane AND state IN (1, 3, 4, 5))
    AND EXISTS (SELECT 1 FROM @queue AS b INDEXED BY @queue_blockers
                WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq
                  AND b.state IN (1, 3, 4, 5)) AS blocked,
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, CAST(e.payload AS BLOB) AS payload,
    e.content_type, e.headers, e.idempotency_key,
    CASE WHEN e.created_at GLOB '*T*Z' THEN e.created_at
         ELSE strftime('%Y-%m-%dT%H:%M:%fZ', e.created_at) END AS created_at
FROM @queue AS q INDEXED BY @queue_hot
CROSS JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = :lane
  AND q.state = 0
  AND q.seq > :above_seq
  AND (:buckets IS NULL OR q.bucket IN (SELECT value FROM json_each(:buckets)))
  AND (:exclude_seqs IS NULL OR q.seq NOT IN (SELECT value FROM json_each(:exclude_seqs)))
  AND (:exclude_keys IS NULL OR q.key NOT IN (SELECT value FROM json_each(:exclude_keys)))
ORDER BY q.seq
LIMIT :limit;

-- claim_bundle: the rows of claim_pending, which goes before as `claimed`, as one: each column's
-- values with char(30) between them, and the payloads end to end, with the length of each.
SELECT
    count(*),
    CAST(group_concat(payload, '') AS BLOB),
    group_concat(length(payload), char(30)),
    group_concat(seq, char(30)),
    group_concat(bucket, char(30)),
    group_concat(attempts, char(30)),
    group_concat(blocked, char(30)),
    group_concat(key, char(30)),
    group_concat(id, char(30)),
    group_concat(aggregate_type, char(30)),
    group_concat(aggregate_id, char(30)),
    group_concat(event_type, char(30)),
    group_concat(content_type, char(30)),
    group_concat(headers, char(30)),
    group_concat(ifnull(idempotency_key, ''), char(30)),
    group_concat(created_at, char(30))
FROM claimed;

-- claim_due: events of the leased buckets whose retry or delivery time has come.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts,
    EXISTS (SELECT 1 FROM @queue INDEXED BY @queue_blockers
            WHERE lane = :lane AND state IN (1, 3, 4, 5))
    AND EXISTS (SELECT 1 FROM @queue AS b INDEXED BY @queue_blockers
                WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq
                  AND b.state IN (1, 3, 4, 5)),
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, CAST(e.payload AS BLOB),
    e.content_type, e.headers, e.idempotency_key,
    CASE WHEN e.created_at GLOB '*T*Z' THEN e.created_at
         ELSE strftime('%Y-%m-%dT%H:%M:%fZ', e.created_at) END
FROM @queue AS q INDEXED BY @queue_due
CROSS JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = :lane
  AND q.state IN (1, 2)
  AND q.due_at <= :now_ms
  AND (:buckets IS NULL OR q.bucket IN (SELECT value FROM json_each(:buckets)))
  AND (:exclude_seqs IS NULL OR q.seq NOT IN (SELECT value FROM json_each(:exclude_seqs)))
  AND (:exclude_keys IS NULL OR q.key NOT IN (SELECT value FROM json_each(:exclude_keys)))
ORDER BY q.due_at, q.seq
LIMIT :limit;

-- next_due: when the first of the retrying and scheduled events is due, or was.
SELECT min(due_at) FROM @queue INDEXED BY @queue_due WHERE lane = :lane AND state IN (1, 2);

-- holds_lease: one row if the fence's lease still exists, expired or not.
SELECT 1 FROM @lease WHERE token = :token AND lane = :lane AND relay = :relay;

-- settle_all_delivered: take delivered events out of the queue, all of which should be there.
DELETE FROM @queue
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND claim_token IN (0, :token);

-- settle_delivered: take delivered events out of the queue and tell which were still there.
DELETE FROM @queue
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND claim_token IN (0, :token)
RETURNING seq;

-- journal: write down one settled batch.
INSERT INTO @delivery (lane, relay, verdict, at, smallest, largest, events, seqs)
VALUES (:lane, :relay, :verdict, :now_ms, :smallest, :largest, :events, :seqs);

-- settle_failure: a refused event becomes retrying or dead, with one attempt more.
UPDATE @queue
SET state = :state, attempts = attempts + 1, due_at = :due_ms, last_error = :error, claim_token = 0
WHERE lane = :lane AND seq = :seq AND claim_token IN (0, :token)
  AND attempts = coalesce(:attempts, attempts);

-- note_failure: write a failed attempt down.
INSERT INTO @attempt (seq, lane, attempt, at, relay, error)
SELECT q.seq, q.lane, q.attempts, :now_ms, :relay, :error
FROM @queue AS q
WHERE q.lane = :lane AND q.seq = :seq;

-- settle_released: claimed events become pending again with no attempt spent.
UPDATE @queue
SET state = 0, due_at = NULL, claim_token = 0
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND state = 5 AND claim_token = :token;

-- settle_parked: events that wait behind a blocked one of their key leave the hot scan.
UPDATE @queue AS q
SET state = 3, due_at = NULL
WHERE q.lane = :lane
  AND q.seq IN (SELECT value FROM json_each(:seqs))
  AND (q.state = 0 OR q.state IN (1, 2) AND q.due_at <= :now_ms)
  AND q.claim_token IN (0, :token)
  AND EXISTS (SELECT 1 FROM @queue AS b INDEXED BY @queue_blockers
              WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq
                AND b.state IN (1, 3, 4, 5));

-- take_claimed: those of these events that a direct pass has claimed and committed.
SELECT
    q.seq, q.key, q.bucket, q.state, q.attempts, 0,
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, CAST(e.payload AS BLOB),
    e.content_type, e.headers, e.idempotency_key,
    CASE WHEN e.created_at GLOB '*T*Z' THEN e.created_at
         ELSE strftime('%Y-%m-%dT%H:%M:%fZ', e.created_at) END
FROM json_each(:ids) AS wanted
CROSS JOIN @event AS e ON e.id = wanted.value
CROSS JOIN @queue AS q ON q.lane = :lane AND q.seq = e.seq
WHERE q.state = 5 AND q.claim_token = :token;

-- pass_delivered: take events out of the queue whose claim still holds, and tell which.
DELETE FROM @queue
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND state = 5 AND claim_token = :token
RETURNING seq;

-- pass_released: claimed events are the relay's, at once and with no attempt spent.
-- As retrying ones, which hold their key back: a sweep may have read past them.
UPDATE @queue
SET state = 1, due_at = :now_ms, claim_token = 0, last_error = :error
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND state = 5 AND claim_token = :token;

-- pass_parked: claimed events that follow a released one of their key wait behind it.
UPDATE @queue
SET state = 3, due_at = NULL, claim_token = 0
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND state = 5 AND claim_token = :token;

-- abandoned_keys: keys of the leased buckets with a direct pass's claim at their head, expired.
WITH RECURSIVE blocked (key) AS (
    SELECT (SELECT q.key FROM @queue AS q INDEXED BY @queue_blockers
            WHERE q.lane = :lane AND q.state IN (1, 3, 4, 5)
            ORDER BY q.key LIMIT 1)
    UNION ALL
    SELECT (SELECT q.key FROM @queue AS q INDEXED BY @queue_blockers
            WHERE q.lane = :lane AND q.state IN (1, 3, 4, 5) AND q.key > blocked.key
            ORDER BY q.key LIMIT 1)
    FROM blocked
    WHERE blocked.key IS NOT NULL
)
SELECT blocked.key
FROM blocked
CROSS JOIN @queue AS head
WHERE head.lane = :lane
  AND head.seq = (SELECT q.seq FROM @queue AS q INDEXED BY @queue_blockers
                  WHERE q.lane = :lane AND q.key = blocked.key AND q.state IN (1, 3, 4, 5)
                  ORDER BY q.seq LIMIT 1)
  AND head.state = 5
  AND (:now_ms IS NULL OR head.due_at <= :now_ms)
  AND (:buckets IS NULL OR head.bucket IN (SELECT value FROM json_each(:buckets)))
LIMIT :limit;

-- free_abandoned: events of a key whose claim has expired become pending.
UPDATE @queue
SET state = 0, due_at = NULL, claim_token = 0
WHERE lane = :lane
  AND seq IN (SELECT q.seq FROM @queue AS q INDEXED BY @queue_blockers
              WHERE q.lane = :lane AND q.key = :key AND q.state IN (1, 3, 4, 5)
                AND q.state = 5 AND q.due_at <= :now_ms);

-- anything_blocked: whether the fence's lease still exists, and whether any key is blocked.
SELECT
    EXISTS (SELECT 1 FROM @lease WHERE token = :token AND lane = :lane AND relay = :relay),
    EXISTS (SELECT 1 FROM @queue INDEXED BY @queue_blockers
            WHERE lane = :lane AND state IN (1, 3, 4, 5));

-- unblocked_keys: keys of the leased buckets whose first blocking event is merely parked.
WITH RECURSIVE blocked (key) AS (
    SELECT (SELECT q.key FROM @queue AS q INDEXED BY @queue_blockers
            WHERE q.lane = :lane AND q.state IN (1, 3, 4, 5)
            ORDER BY q.key LIMIT 1)
    UNION ALL
    SELECT (SELECT q.key FROM @queue AS q INDEXED BY @queue_blockers
            WHERE q.lane = :lane AND q.state IN (1, 3, 4, 5) AND q.key > blocked.key
            ORDER BY q.key LIMIT 1)
    FROM blocked
    WHERE blocked.key IS NOT NULL
)
SELECT blocked.key
FROM blocked
CROSS JOIN @queue AS head
WHERE head.lane = :lane
  AND head.seq = (SELECT q.seq FROM @queue AS q INDEXED BY @queue_blockers
                  WHERE q.lane = :lane AND q.key = blocked.key AND q.state IN (1, 3, 4, 5)
                  ORDER BY q.seq LIMIT 1)
  AND head.state = 3
  AND (:buckets IS NULL OR head.bucket IN (SELECT value FROM json_each(:buckets)))
LIMIT :limit;

-- unpark_key: the first parked events of a key, up to the next blocking one, become pending.
UPDATE @queue
SET state = 0
WHERE lane = :lane
  AND seq IN (
    SELECT seq
    FROM (SELECT seq, sum(state <> 3) OVER (ORDER BY seq) AS blocking_before
          FROM (SELECT seq, state FROM @queue INDEXED BY @queue_blockers
                WHERE lane = :lane AND key = :key AND state IN (1, 3, 4, 5)
                ORDER BY seq LIMIT :limit))
    WHERE blocking_before = 0);

-- has_work: whether anything is pending, retrying or due.
SELECT EXISTS (SELECT 1 FROM @queue INDEXED BY @queue_hot WHERE lane = :lane AND state = 0)
    OR EXISTS (SELECT 1 FROM @queue INDEXED BY @queue_due
               WHERE lane = :lane AND state IN (1, 2) AND due_at <= :now_ms)
    OR EXISTS (SELECT 1 FROM @queue INDEXED BY @queue_due
               WHERE lane = :lane AND state IN (1, 2) AND state = 1);

-- remove_expired_leases: of the other relays in the lane.
DELETE FROM @lease WHERE lane = :lane AND relay <> :relay AND expires_at < :now_ms;

-- own_lease: token and buckets of a relay.
SELECT token, buckets FROM @lease WHERE lane = :lane AND relay = :relay;

-- join_lane: a new lease with no bucket and a new token.
INSERT INTO @lease (lane, relay, strategy, expires_at, joined_at)
VALUES (:lane, :relay, :strategy, :expires_ms, :now_ms)
RETURNING token;

-- extend_lease: hold these buckets for some more time.
UPDATE @lease SET strategy = :strategy, buckets = :buckets, expires_at = :expires_ms
WHERE token = :token;

-- lane_leases: everybody in the lane.
SELECT relay, buckets, strategy FROM @lease WHERE lane = :lane;

-- lane_paused: the lane's switch.
SELECT paused FROM @lane WHERE id = :lane;

-- set_buckets: what a relay holds from now on.
UPDATE @lease SET buckets = :buckets WHERE token = :token;

-- leave_lane: give a lease up.
DELETE FROM @lease WHERE token = :token AND lane = :lane AND relay = :relay;

-- remove_expired_circuits: of relays that died while they held off.
DELETE FROM @circuit WHERE expires_at < :now_ms;

-- open_circuit: a relay holds off from its broker, and stands by that for some time.
INSERT INTO @circuit (lane, relay, opened_at, error, expires_at)
VALUES (:lane, :relay, :opened_ms, :error, :expires_ms)
ON CONFLICT (lane, relay) DO UPDATE
SET opened_at = excluded.opened_at, error = excluded.error, expires_at = excluded.expires_at;

-- close_circuit: a relay does not hold off any more.
DELETE FROM @circuit WHERE lane = :lane AND relay = :relay;

-- purge_inbox: delete the oldest marks.
DELETE FROM @inbox
WHERE (consumer, event_id) IN (
    SELECT i.consumer, i.event_id FROM @inbox AS i
    WHERE i.done_at < :before_ms
    ORDER BY i.done_at
    LIMIT :limit);

-- schema_version: the number of the newest migration.
SELECT coalesce(max(number), 0) FROM @migration;

-- record_migration: remember that a migration was applied.
INSERT INTO @migration (number, name) VALUES (:number, :name) ON CONFLICT (number) DO NOTHING;

-- table_exists: whether a table of this name is there.
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name;

-- find_lane: a lane by its name.
SELECT id, name, paused FROM @lane WHERE name = :name;

-- add_lane: a new lane.
INSERT INTO @lane (name, aggregate_types, event_types)
VALUES (:name, :aggregate_types, :event_types)
ON CONFLICT (name) DO NOTHING
RETURNING id, name, paused;

-- set_paused: turn a lane's switch.
UPDATE @lane SET paused = :paused WHERE name = :name;

-- lanes: all lanes.
SELECT id, name, paused FROM @lane ORDER BY id;

-- count_pending: pending events of a lane, up to a cap.
SELECT count(*) FROM (
    SELECT 1 FROM @queue INDEXED BY @queue_hot WHERE lane = :lane AND state = 0 LIMIT :cap);

-- count_due: retrying and scheduled events of a lane, up to a cap.
SELECT state, count(*)
FROM (SELECT state FROM @queue INDEXED BY @queue_due
      WHERE lane = :lane AND state IN (1, 2) LIMIT :cap)
GROUP BY state;

-- count_dead: dead events of a lane by whether they block their key, up to a cap.
SELECT state, count(*)
FROM (SELECT state FROM @queue INDEXED BY @queue_dead
      WHERE lane = :lane AND state IN (4, 6) LIMIT :cap)
GROUP BY state;

-- count_waiting: parked and claimed events of a lane, up to a cap.
SELECT state, count(*)
FROM (SELECT state FROM @queue INDEXED BY @queue_blockers
      WHERE lane = :lane AND state IN (1, 3, 4, 5) AND state IN (3, 5) LIMIT :cap)
GROUP BY state;

-- oldest_waiting: when the oldest pending or retrying event was created, in milliseconds.
SELECT min((julianday(e.created_at) - 2440587.5) * 86400000.0)
FROM (
    SELECT min(seq) AS seq FROM @queue INDEXED BY @queue_hot WHERE lane = :lane AND state = 0
    UNION ALL
    SELECT min(seq) FROM (SELECT seq FROM @queue INDEXED BY @queue_due
                          WHERE lane = :lane AND state IN (1, 2) AND state = 1 LIMIT :cap)
) AS oldest
JOIN @event AS e ON e.seq = oldest.seq;

-- published_since: how many events were published in a lane since a moment.
SELECT coalesce(sum(events), 0) FROM @delivery
WHERE lane = :lane AND at >= :since_ms AND verdict = 0;

-- last_published: when the last batch was published in a lane.
SELECT at FROM @delivery WHERE lane = :lane AND verdict = 0 ORDER BY at DESC LIMIT 1;

-- last_error: of the event that was refused last and is still in the queue.
SELECT last_error FROM (
    SELECT * FROM (SELECT last_error, 0 AS rank FROM @queue INDEXED BY @queue_due
                   WHERE lane = :lane AND state IN (1, 2) AND last_error IS NOT NULL
                   ORDER BY due_at DESC LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT last_error, 1 FROM @queue INDEXED BY @queue_dead
                   WHERE lane = :lane AND state IN (4, 6)
                   ORDER BY seq DESC LIMIT 1)
) ORDER BY rank LIMIT 1;

-- relays: who holds leases in a lane that have not expired.
SELECT relay, buckets, expires_at FROM @lease
WHERE lane = :lane AND expires_at > :now_ms
ORDER BY relay;

-- circuits: who holds off in a lane, since when, and why.
SELECT relay, opened_at, error FROM @circuit
WHERE lane = :lane AND expires_at > :now_ms
ORDER BY relay;

-- list_events: events of the log that match, newest first.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type, e.headers,
       e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq < :before_seq
  AND e.seq > :above_seq
  AND (:aggregate_type IS NULL OR e.aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR e.aggregate_id = :aggregate_id)
  AND (:event_type IS NULL OR e.event_type = :event_type)
  AND (:since_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 >= :since_ms)
  AND (:until_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 < :until_ms)
  AND (:lane IS NULL
       OR EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = :lane AND q.seq = e.seq)
       OR EXISTS (SELECT 1 FROM @delivery AS j INDEXED BY @delivery_page
                  WHERE j.smallest >> 12 = e.seq >> 12 AND j.lane = :lane
                    AND e.seq IN (SELECT value FROM json_each(j.seqs))))
ORDER BY e.seq DESC
LIMIT :limit;

-- list_queued: events in one of these states that match, newest first.
-- {states} is filled in as literal numbers, so that the planner knows the partial index for them.
SELECT DISTINCT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @lane AS lane
CROSS JOIN @queue AS q ON q.lane = lane.id
CROSS JOIN @event AS e ON e.seq = q.seq
WHERE (:lane IS NULL OR lane.id = :lane)
  AND q.seq < :before_seq
  AND q.seq > :above_seq
  AND q.state IN ({states})
  AND (:error IS NULL OR instr(lower(q.last_error), lower(:error)))
  AND (:aggregate_type IS NULL OR e.aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR e.aggregate_id = :aggregate_id)
  AND (:event_type IS NULL OR e.event_type = :event_type)
  AND (:since_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 >= :since_ms)
  AND (:until_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 < :until_ms)
ORDER BY e.seq DESC
LIMIT :limit;

-- list_settled: events that left a lane's queue with this verdict and match, newest first.
-- What was added after the newest settled event, such as a long backlog, is not looked at.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type, e.headers,
       e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq < :before_seq
  AND e.seq < ((SELECT max(d.smallest >> 12) FROM @delivery AS d) + 1) << 12
  AND e.seq > :above_seq
  AND (:aggregate_type IS NULL OR e.aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR e.aggregate_id = :aggregate_id)
  AND (:event_type IS NULL OR e.event_type = :event_type)
  AND (:since_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 >= :since_ms)
  AND (:until_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 < :until_ms)
  AND EXISTS (
    SELECT 1 FROM @delivery AS j
    WHERE j.smallest >> 12 = e.seq >> 12
      AND j.verdict = :verdict
      AND (:lane IS NULL OR j.lane = :lane)
      AND e.seq IN (SELECT value FROM json_each(j.seqs))
      AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = j.lane AND q.seq = e.seq))
ORDER BY e.seq DESC
LIMIT :limit;

-- show_event: one event of the log with its payload.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type, e.headers,
       e.idempotency_key, e.created_at, e.deliver_at, CAST(e.payload AS BLOB)
FROM @event AS e
WHERE e.id = :id;

-- completed_rows: when these events were completed, if they were.
SELECT e.seq, c.completed_at FROM @event AS e CROSS JOIN @completion AS c ON c.event_id = e.id
WHERE e.seq IN (SELECT value FROM json_each(:seqs)) AND c.completed_at IS NOT NULL;

-- queue_rows: where events stand in the lanes that still have them.
SELECT q.seq, lane.name, q.state, q.attempts, q.due_at, q.last_error,
       (SELECT b.seq FROM @queue AS b INDEXED BY @queue_blockers
        WHERE b.lane = q.lane AND b.key = q.key AND b.seq < q.seq AND b.state IN (1, 3, 4, 5)
        ORDER BY b.seq LIMIT 1)
FROM @lane AS lane
CROSS JOIN @queue AS q ON q.lane = lane.id
WHERE q.seq IN (SELECT value FROM json_each(:seqs))
ORDER BY q.seq, lane.id;

-- journal_rows: how events left the lanes that do not have them any more, latest last.
SELECT s.value, lane.name, d.verdict, d.at, d.relay
FROM json_each(:seqs) AS s
CROSS JOIN @delivery AS d ON d.smallest >> 12 = s.value >> 12
CROSS JOIN @lane AS lane ON lane.id = d.lane
WHERE s.value IN (SELECT value FROM json_each(d.seqs))
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = d.lane AND q.seq = s.value)
ORDER BY s.value, lane.id, d.id;
