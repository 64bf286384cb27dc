-- What operators ask and change. An act first writes down which events it changes, and holds them;
-- what follows in its transaction goes by that list.

-- log_ends: the smallest and the largest seq of the log.
SELECT min(seq), max(seq) FROM @event;

-- is_older: whether the first event from a seq on was added before a time.
SELECT e.created_at < %(before)s
FROM @event AS e FORCE INDEX (PRIMARY)
WHERE e.seq >= %(seq)s
ORDER BY e.seq
LIMIT 1;

-- find_targets: queued events in one of these states that match.
SELECT q.seq, q.lane, q.state
FROM @lane AS lane
STRAIGHT_JOIN @queue AS q FORCE INDEX (@@queue_hot) ON q.lane = lane.id
STRAIGHT_JOIN @event AS e ON e.seq = q.seq
WHERE (%(lane)s IS NULL OR lane.id = %(lane)s)
  AND q.state IN ({states})
  AND (%(error)s IS NULL OR instr(lower(q.last_error), lower(%(error)s)) > 0)
  AND (%(aggregate_type)s IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s IS NULL OR e.created_at < %(until)s)
LIMIT %(limit)s;

-- find_targets_by_id: these events in the lanes that still have them.
SELECT q.seq, q.lane, q.state
FROM @event AS e FORCE INDEX (@@event_id)
STRAIGHT_JOIN @queue AS q FORCE INDEX (PRIMARY) ON q.seq = e.seq
WHERE e.id IN (%(ids)s)
  AND (%(lane)s IS NULL OR q.lane = %(lane)s)
ORDER BY q.lane, q.seq
LIMIT %(limit)s;

-- begin_act: write down what an operator is about to do.
INSERT INTO @audit (actor, action, lane, detail)
VALUES (%(actor)s, %(action)s, %(act_lane)s, %(detail)s);

-- act_id: the number of the audit row that this session has just written.
SELECT last_insert_id();

-- count_events: add the events of a batch to what an act has changed.
UPDATE @audit
SET events = events + (SELECT count(*) FROM @audit_event AS c
                       WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s))
WHERE id = %(audit)s;

-- note_retried: dead and retrying events that no relay can have in hand.
INSERT INTO @audit_event (seq, audit, lane)
SELECT q.seq, %(audit)s, q.lane
FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.state = %(state)s
  AND q.claim_token = 0
  AND (q.state IN (4, 6) OR (q.state = 1 AND q.due_at > utc_timestamp(6)))
FOR UPDATE;

-- retry_events: they are due now, with all attempts before them.
UPDATE @audit_event AS c FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @queue AS q FORCE INDEX (PRIMARY) ON q.seq = c.seq AND q.lane = c.lane
SET q.state = 1, q.attempts = 0, q.due_at = utc_timestamp(6)
WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s);

-- note_removed: events that no relay can have in hand.
INSERT INTO @audit_event (seq, audit, lane)
SELECT q.seq, %(audit)s, q.lane
FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.state = %(state)s
  AND q.claim_token = 0
  AND (q.state IN (3, 4, 6)
       OR (q.state IN (1, 2) AND q.due_at > utc_timestamp(6))
       OR NOT EXISTS (SELECT 1 FROM @lease AS l
                      WHERE l.lane = %(lane)s AND l.expires_at >= utc_timestamp(6)))
FOR UPDATE;

-- journal_removed: how they leave the queue.
INSERT INTO @delivery (page, smallest, largest, at, lane, events, verdict, relay, seqs)
SELECT c.seq >> 12, min(c.seq), max(c.seq), utc_timestamp(6), %(lane)s, count(*), %(verdict)s,
       (SELECT a.actor FROM @audit AS a WHERE a.id = %(audit)s), group_concat(c.seq ORDER BY c.seq)
FROM @audit_event AS c FORCE INDEX (PRIMARY)
WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s)
GROUP BY c.seq >> 12;

-- remove_events: they leave the queue.
DELETE q
FROM @audit_event AS c FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @queue AS q FORCE INDEX (PRIMARY) ON q.seq = c.seq AND q.lane = c.lane
WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s);

-- count_edits: how often these events have been edited.
SELECT d.seq, count(*) FROM @edit AS d WHERE d.seq IN (%(seqs)s) GROUP BY d.seq;

-- lock_target: one queued event, so that two who edit it take turns.
SELECT q.seq FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.seq IN (%(seqs)s) AND q.lane = %(lane)s FOR UPDATE;

-- note_edited: a dead event, unless it was edited since.
INSERT INTO @audit_event (seq, audit, lane)
SELECT q.seq, %(audit)s, q.lane
FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s
  AND q.seq IN (%(seqs)s)
  AND q.state = %(state)s AND q.state IN (4, 6) AND q.claim_token = 0
  AND (SELECT count(*) FROM @edit AS d WHERE d.seq = q.seq) = %(edits)s;

-- keep_version: what the event was.
INSERT INTO @edit (seq, actor, payload, content_type, headers)
SELECT e.seq, (SELECT a.actor FROM @audit AS a WHERE a.id = %(audit)s),
       e.payload, e.content_type, e.headers
FROM @audit_event AS c FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @event AS e ON e.seq = c.seq
WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s);

-- edit_event: what it is from now on.
UPDATE @audit_event AS c FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @event AS e ON e.seq = c.seq
SET e.payload = %(payload)s, e.content_type = %(content_type)s, e.headers = %(headers)s
WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s);

-- find_in_log: events of the log that match and, of a lane, have left it; oldest first.
SELECT e.seq
FROM @event AS e FORCE INDEX (PRIMARY)
WHERE e.seq > %(above_seq)s
  AND (%(aggregate_type)s IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s IS NULL OR e.created_at < %(until)s)
  AND (%(lane)s IS NULL
       OR EXISTS (SELECT 1 FROM @delivery AS d FORCE INDEX (@@delivery_page)
                  WHERE d.page = e.seq >> 12 AND d.lane = %(lane)s
                    AND find_in_set(e.seq, d.seqs)))
ORDER BY e.seq
LIMIT %(limit)s;

-- find_in_log_by_id: these events of the log, oldest first.
SELECT e.seq
FROM @event AS e FORCE INDEX (@@event_id)
WHERE e.id IN (%(ids)s)
  AND e.seq > %(above_seq)s
  AND (%(lane)s IS NULL
       OR EXISTS (SELECT 1 FROM @delivery AS d FORCE INDEX (@@delivery_page)
                  WHERE d.page = e.seq >> 12 AND d.lane = %(lane)s
                    AND find_in_set(e.seq, d.seqs)))
ORDER BY e.seq
LIMIT %(limit)s;

-- note_replayed: events of the log that the lane's queue does not have.
INSERT INTO @audit_event (seq, audit, lane)
SELECT e.seq, %(audit)s, %(lane)s
FROM @event AS e FORCE INDEX (PRIMARY)
WHERE e.seq IN (%(seqs)s)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = e.seq AND q.lane = %(lane)s);

-- replay_events: they enter the queue as parked; the rest is as the trigger does.
INSERT INTO @queue (lane, seq, `key`, bucket, state)
SELECT %(lane)s, hashed.seq, hashed.hash, hashed.hash & 63, 3
FROM (
    SELECT e.seq,
           CAST(conv(left(sha2(concat_ws(char(31), e.aggregate_type, e.aggregate_id), 256), 16),
                     16, 10) AS UNSIGNED) AS hash
    FROM @audit_event AS c FORCE INDEX (PRIMARY)
    STRAIGHT_JOIN @event AS e ON e.seq = c.seq
    WHERE c.audit = %(audit)s AND c.lane = %(lane)s AND c.seq IN (%(seqs)s)
) AS hashed;

-- blocked_keys: keys whose first blocking event is retrying or dead, with how many wait behind it.
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
SELECT
    e.aggregate_type, e.aggregate_id, head.seq, e.id, e.event_type, head.state, head.attempts,
    head.due_at, head.last_error,
    coalesce((SELECT min(a.at) FROM @attempt AS a WHERE a.seq = head.seq AND a.lane = %(lane)s),
             e.created_at),
    (SELECT count(*) FROM @queue AS w FORCE INDEX (@@queue_blockers)
     WHERE w.lane = %(lane)s AND w.blocking_key = head.key AND w.seq > head.seq
       AND w.seq < coalesce(
           (SELECT x.seq FROM @queue AS x FORCE INDEX (@@queue_blockers)
            WHERE x.lane = %(lane)s AND x.blocking_key = head.key AND x.seq > head.seq
            ORDER BY x.seq LIMIT %(cap)s, 1), 9223372036854775807)),
    head.key
FROM (
    SELECT (SELECT q.seq FROM @queue AS q FORCE INDEX (@@queue_blockers)
            WHERE q.lane = %(lane)s AND q.blocking_key = blocked.k
            ORDER BY q.seq LIMIT 1) AS seq
    FROM blocked
    WHERE blocked.k IS NOT NULL
) AS first
STRAIGHT_JOIN @queue AS head FORCE INDEX (PRIMARY)
    ON head.seq = first.seq AND head.lane = %(lane)s
STRAIGHT_JOIN @event AS e ON e.seq = head.seq
WHERE head.state IN (1, 4)
LIMIT %(limit)s;

-- pending_after: keys of the first pending events behind one event, for those that nobody parked yet.
SELECT q.key, q.seq FROM @queue AS q FORCE INDEX (@@queue_hot)
WHERE q.lane = %(lane)s AND q.state = 0 AND q.seq > %(seq)s
ORDER BY q.seq
LIMIT %(cap)s;

-- lane_names: all lanes.
SELECT id, name FROM @lane ORDER BY id;

-- attempts: that failed at one event, oldest first.
SELECT coalesce(lane.name, '(removed)'), a.attempt, a.at, a.relay, a.error
FROM @attempt AS a
LEFT JOIN @lane AS lane ON lane.id = a.lane
WHERE a.seq = %(seq)s
ORDER BY a.id;

-- settlements: how one event left its lanes' queues, oldest first.
SELECT coalesce(lane.name, '(removed)'), d.verdict, d.at, d.relay
FROM @delivery AS d FORCE INDEX (@@delivery_page)
LEFT JOIN @lane AS lane ON lane.id = d.lane
WHERE d.page = %(seq)s >> 12 AND find_in_set(%(seq)s, d.seqs)
ORDER BY d.id;

-- edits: what one event was before, oldest first.
SELECT d.at, d.actor, d.payload, d.content_type, d.headers
FROM @edit AS d
WHERE d.seq = %(seq)s
ORDER BY d.id;

-- acts: of operators that changed one event, oldest first.
SELECT a.id, a.at, a.actor, a.action, lane.name, a.detail, a.events
FROM @audit_event AS c FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @audit AS a ON a.id = c.audit
LEFT JOIN @lane AS lane ON lane.id = c.lane
WHERE c.seq = %(seq)s
ORDER BY a.id, c.lane;

-- stuck_behind: the events that block one event's key in its lanes.
SELECT lane.name, b.seq, e.id, e.event_type, b.state, b.last_error
FROM (
    SELECT q.lane AS lane,
           (SELECT f.seq FROM @queue AS f FORCE INDEX (@@queue_blockers)
            WHERE f.lane = q.lane AND f.blocking_key = q.key AND f.seq < q.seq
            ORDER BY f.seq LIMIT 1) AS seq
    FROM @queue AS q FORCE INDEX (PRIMARY)
    WHERE q.seq = %(seq)s
) AS first
STRAIGHT_JOIN @queue AS b FORCE INDEX (PRIMARY) ON b.seq = first.seq AND b.lane = first.lane
STRAIGHT_JOIN @lane AS lane ON lane.id = b.lane
STRAIGHT_JOIN @event AS e ON e.seq = b.seq
ORDER BY lane.id;

-- holds: who has one event in hand in its lanes: the relay of its claim, or of its bucket's lease.
SELECT
    lane.name, q.state, q.claim_token, held.relay,
    timestampdiff(MICROSECOND, utc_timestamp(6),
                  CASE WHEN q.state = 5 THEN q.due_at ELSE held.expires_at END) / 1000000,
    EXISTS (SELECT 1 FROM @lease AS l
            WHERE l.lane = q.lane AND l.strategy = 'competing' AND l.expires_at > utc_timestamp(6))
FROM @queue AS q FORCE INDEX (PRIMARY)
STRAIGHT_JOIN @lane AS lane ON lane.id = q.lane
LEFT JOIN @lease AS held ON held.lane = q.lane
    AND CASE WHEN q.state = 5 THEN held.token = q.claim_token
        ELSE held.buckets >> q.bucket & 1 AND held.expires_at > utc_timestamp(6) END
WHERE q.seq = %(seq)s AND q.state NOT IN (4, 6)
ORDER BY lane.id;

-- completed: when downstream said that one event is done.
SELECT c.completed_at FROM @event AS e JOIN @completion AS c ON c.event_id = e.id
WHERE e.seq = %(seq)s;

-- list_audit: what operators did, newest first.
SELECT id, at, actor, action, lane, detail, events FROM @audit
WHERE id < %(before_id)s
ORDER BY id DESC
LIMIT %(limit)s;
