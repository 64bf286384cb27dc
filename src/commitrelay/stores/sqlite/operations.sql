-- What operators ask and change. `:now_ms` is the store's clock, in milliseconds since 1970.

-- log_ends: the smallest and the largest seq of the log.
SELECT (SELECT seq FROM @event ORDER BY seq LIMIT 1),
       (SELECT seq FROM @event ORDER BY seq DESC LIMIT 1);

-- is_older: whether the first event from a seq on was added before a time.
SELECT (julianday(e.created_at) - 2440587.5) * 86400000.0 < :before_ms
FROM @event AS e
WHERE e.seq >= :seq
ORDER BY e.seq
LIMIT 1;

-- find_targets: queued events in one of these states that match.
-- {states} is filled in as literal numbers, so that the planner knows the partial index for them.
SELECT q.seq, q.lane, q.state
FROM @lane AS lane
CROSS JOIN @queue AS q ON q.lane = lane.id
CROSS JOIN @event AS e ON e.seq = q.seq
WHERE (:lane IS NULL OR lane.id = :lane)
  AND q.state IN ({states})
  AND (:error IS NULL OR instr(lower(q.last_error), lower(:error)))
  AND (:aggregate_type IS NULL OR e.aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR e.aggregate_id = :aggregate_id)
  AND (:event_type IS NULL OR e.event_type = :event_type)
  AND (:since_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 >= :since_ms)
  AND (:until_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 < :until_ms)
LIMIT :limit;

-- find_targets_by_id: these events in the lanes that still have them.
SELECT q.seq, q.lane, q.state
FROM json_each(:ids) AS wanted
CROSS JOIN @event AS e ON e.id = wanted.value
CROSS JOIN @lane AS lane
CROSS JOIN @queue AS q ON q.lane = lane.id AND q.seq = e.seq
WHERE (:lane IS NULL OR lane.id = :lane)
ORDER BY q.lane, q.seq
LIMIT :limit;

-- begin_act: write down what an operator is about to do.
INSERT INTO @audit (at, actor, action, lane, detail)
VALUES (:now_ms, :actor, :action, :lane, :detail)
RETURNING id;

-- note_events: which events an act has changed.
INSERT INTO @audit_event (seq, audit, lane)
SELECT value, :audit, :lane FROM json_each(:seqs) WHERE true
ON CONFLICT DO NOTHING;

-- count_events: how many events an act has changed.
UPDATE @audit SET events = events + :events WHERE id = :audit;

-- actor: of an act.
SELECT actor FROM @audit WHERE id = :audit;

-- retry_events: dead and retrying events are due now, with all attempts before them.
UPDATE @queue
SET state = 1, attempts = 0, due_at = :now_ms
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND state = :state
  AND claim_token = 0
  AND (state IN (4, 6) OR state = 1 AND due_at > :now_ms)
RETURNING seq;

-- remove_events: take events out of the queue that no relay can have in hand.
DELETE FROM @queue
WHERE lane = :lane
  AND seq IN (SELECT value FROM json_each(:seqs))
  AND state = :state
  AND claim_token = 0
  AND (state IN (3, 4, 6)
       OR state IN (1, 2) AND due_at > :now_ms
       OR NOT EXISTS (SELECT 1 FROM @lease WHERE lane = :lane AND expires_at >= :now_ms))
RETURNING seq;

-- count_edits: how often these events have been edited.
SELECT d.seq, count(*) FROM @edit AS d
WHERE d.seq IN (SELECT value FROM json_each(:seqs))
GROUP BY d.seq;

-- keep_version: of a dead event, unless it was edited since.
INSERT INTO @edit (seq, at, actor, payload, content_type, headers)
SELECT e.seq, :now_ms, :actor, CAST(e.payload AS BLOB), e.content_type, e.headers
FROM @event AS e
JOIN @queue AS q ON q.lane = :lane AND q.seq = e.seq
WHERE e.seq = :seq
  AND q.state = :state AND q.state IN (4, 6) AND q.claim_token = 0
  AND (SELECT count(*) FROM @edit AS d WHERE d.seq = :seq) = :edits;

-- change_event: what an operator edited.
UPDATE @event
SET payload = :payload, content_type = :content_type, headers = :headers
WHERE seq = :seq;

-- find_in_log: events of the log that match and, of a lane, have left it; oldest first.
SELECT e.seq
FROM @event AS e
WHERE e.seq > :above_seq
  AND (:aggregate_type IS NULL OR e.aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR e.aggregate_id = :aggregate_id)
  AND (:event_type IS NULL OR e.event_type = :event_type)
  AND (:since_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 >= :since_ms)
  AND (:until_ms IS NULL OR (julianday(e.created_at) - 2440587.5) * 86400000.0 < :until_ms)
  AND (:lane IS NULL
       OR EXISTS (SELECT 1 FROM @delivery AS j INDEXED BY @delivery_page
                  WHERE j.smallest >> 12 = e.seq >> 12 AND j.lane = :lane
                    AND e.seq IN (SELECT value FROM json_each(j.seqs))))
ORDER BY e.seq
LIMIT :limit;

-- find_in_log_by_id: these events of the log, oldest first.
SELECT e.seq
FROM json_each(:ids) AS wanted
CROSS JOIN @event AS e ON e.id = wanted.value
WHERE e.seq > :above_seq
  AND (:lane IS NULL
       OR EXISTS (SELECT 1 FROM @delivery AS j INDEXED BY @delivery_page
                  WHERE j.smallest >> 12 = e.seq >> 12 AND j.lane = :lane
                    AND e.seq IN (SELECT value FROM json_each(j.seqs))))
ORDER BY e.seq
LIMIT :limit;

-- replay_events: events of the log enter a lane's queue as parked; the rest is as the trigger does.
INSERT INTO @queue (lane, seq, key, bucket, state)
SELECT
    :lane, e.seq, e.aggregate_type || char(31) || e.aggregate_id,
    coalesce(
        unicode(substr('000' || e.aggregate_id, -1))
        + 11 * unicode(substr('000' || e.aggregate_id, -2, 1))
        + 37 * unicode(substr('000' || e.aggregate_id, -3, 1))
        + 59 * unicode(substr('000' || e.aggregate_id, -4, 1))
        + length(e.aggregate_type), 0) & 63,
    3
FROM @event AS e
WHERE e.seq IN (SELECT value FROM json_each(:seqs))
ON CONFLICT DO NOTHING
RETURNING seq;

-- blocked_keys: keys whose first blocking event is retrying or dead, with how many wait behind it.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step.
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
SELECT
    e.aggregate_type, e.aggregate_id, head.seq, e.id, e.event_type, head.state, head.attempts,
    head.due_at, head.last_error,
    coalesce((SELECT min(a.at) FROM @attempt AS a WHERE a.seq = head.seq AND a.lane = :lane),
             (julianday(e.created_at) - 2440587.5) * 86400000.0),
    (SELECT count(*) FROM (
        SELECT 1 FROM @queue AS w INDEXED BY @queue_blockers
        WHERE w.lane = :lane AND w.key = blocked.key AND w.state IN (1, 3, 4, 5)
          AND w.seq > head.seq
        LIMIT :cap)),
    blocked.key
FROM blocked
CROSS JOIN @queue AS head
CROSS JOIN @event AS e ON e.seq = head.seq
WHERE head.lane = :lane
  AND head.seq = (SELECT q.seq FROM @queue AS q INDEXED BY @queue_blockers
                  WHERE q.lane = :lane AND q.key = blocked.key AND q.state IN (1, 3, 4, 5)
                  ORDER BY q.seq LIMIT 1)
  AND head.state IN (1, 4)
LIMIT :limit;

-- pending_after: keys of the first pending events behind one event, for those that nobody parked yet.
SELECT q.key, q.seq FROM @queue AS q INDEXED BY @queue_hot
WHERE q.lane = :lane AND q.state = 0 AND q.seq > :seq
ORDER BY q.seq
LIMIT :cap;

-- attempts: that failed at one event, oldest first.
SELECT coalesce(lane.name, '(removed)'), a.attempt, a.at, a.relay, a.error
FROM @attempt AS a
LEFT JOIN @lane AS lane ON lane.id = a.lane
WHERE a.seq = :seq
ORDER BY a.id;

-- settlements: how one event left its lanes' queues, oldest first.
SELECT coalesce(lane.name, '(removed)'), j.verdict, j.at, j.relay
FROM @delivery AS j INDEXED BY @delivery_page
LEFT JOIN @lane AS lane ON lane.id = j.lane
WHERE j.smallest >> 12 = :seq >> 12
  AND :seq IN (SELECT value FROM json_each(j.seqs))
ORDER BY j.id;

-- edits: what one event was before, oldest first.
SELECT d.at, d.actor, d.payload, d.content_type, d.headers
FROM @edit AS d
WHERE d.seq = :seq
ORDER BY d.id;

-- acts: of operators that changed one event, oldest first.
SELECT a.id, a.at, a.actor, a.action, lane.name, a.detail, a.events
FROM @audit_event AS c
CROSS JOIN @audit AS a ON a.id = c.audit
LEFT JOIN @lane AS lane ON lane.id = c.lane
WHERE c.seq = :seq
ORDER BY a.id, c.lane;

-- stuck_behind: the events that block one event's key in its lanes.
SELECT lane.name, b.seq, e.id, e.event_type, b.state, b.last_error
FROM @lane AS lane
CROSS JOIN @queue AS q ON q.lane = lane.id AND q.seq = :seq
CROSS JOIN @queue AS b ON b.lane = lane.id AND b.seq = (
    SELECT f.seq FROM @queue AS f INDEXED BY @queue_blockers
    WHERE f.lane = q.lane AND f.key = q.key AND f.seq < q.seq AND f.state IN (1, 3, 4, 5)
    ORDER BY f.seq LIMIT 1)
CROSS JOIN @event AS e ON e.seq = b.seq
ORDER BY lane.id;

-- holds: who has one event in hand in its lanes: the relay of its claim, or of its bucket's lease.
SELECT
    lane.name, q.state, q.claim_token, held.relay,
    (CASE WHEN q.state = 5 THEN q.due_at ELSE held.expires_at END - :now_ms) / 1000.0,
    EXISTS (SELECT 1 FROM @lease AS l
            WHERE l.lane = q.lane AND l.strategy = 'competing' AND l.expires_at > :now_ms)
FROM @lane AS lane
CROSS JOIN @queue AS q ON q.lane = lane.id AND q.seq = :seq
LEFT JOIN @lease AS held ON held.lane = q.lane
    AND CASE WHEN q.state = 5 THEN held.token = q.claim_token
        ELSE held.expires_at > :now_ms
             AND q.bucket IN (SELECT value FROM json_each(held.buckets)) END
WHERE q.state NOT IN (4, 6)
ORDER BY lane.id;

-- completed: when downstream said that one event is done.
SELECT c.completed_at FROM @event AS e CROSS JOIN @completion AS c ON c.event_id = e.id
WHERE e.seq = :seq;

-- list_audit: what operators did, newest first.
SELECT id, at, actor, action, lane, detail, events FROM @audit
WHERE id < :before_id
ORDER BY id DESC
LIMIT :limit;
