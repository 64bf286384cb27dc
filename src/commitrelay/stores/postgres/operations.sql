-- What operators ask and change. An act's rows are named in the same statement that changes them.

-- log_ends: the smallest and the largest seq of the log.
SELECT (SELECT seq FROM @event ORDER BY seq LIMIT 1),
       (SELECT seq FROM @event ORDER BY seq DESC LIMIT 1);

-- is_older: whether the first event from a seq on was added before a time.
SELECT e.created_at < %(before)s
FROM @event AS e
WHERE e.seq >= %(seq)s
ORDER BY e.seq
LIMIT 1;

-- find_targets: queued events in one of these states that match.
-- {states} is filled in as literal numbers, so that the planner knows the partial index for them.
SELECT q.seq, q.lane, q.state
FROM @queue AS q
JOIN @event AS e ON e.seq = q.seq
WHERE (%(lane)s::integer IS NULL OR q.lane = %(lane)s)
  AND q.state IN ({states})
  AND (%(error)s::text IS NULL OR position(lower(%(error)s) IN lower(q.last_error)) > 0)
  AND (%(aggregate_type)s::text IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s::text IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s::timestamptz IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR e.created_at < %(until)s)
LIMIT %(limit)s;

-- find_targets_by_id: these events in the lanes that still have them.
SELECT q.seq, q.lane, q.state
FROM @event AS e
JOIN @queue AS q ON q.seq = e.seq
WHERE e.id = ANY (%(ids)s::uuid[])
  AND (%(lane)s::integer IS NULL OR q.lane = %(lane)s)
ORDER BY q.lane, q.seq
LIMIT %(limit)s;

-- begin_act: write down what an operator is about to do.
INSERT INTO @audit (actor, action, lane, detail)
VALUES (%(actor)s, %(action)s, %(act_lane)s, %(detail)s::json)
RETURNING id;

-- retry_events: dead and retrying events are due now, with all attempts before them.
WITH changed AS (
    UPDATE @queue AS q
    SET state = 1, attempts = 0, due_at = clock_timestamp()
    WHERE q.lane = %(lane)s
      AND q.seq = ANY (%(seqs)s::bigint[])
      AND q.state + 0 = %(state)s
      AND q.claim_token = 0
      AND (q.state IN (4, 6) OR q.state = 1 AND q.due_at > clock_timestamp())
    RETURNING q.seq
),
noted AS (
    INSERT INTO @audit_event (seq, audit, lane)
    SELECT changed.seq, %(audit)s, %(lane)s FROM changed
)
UPDATE @audit SET events = events + (SELECT count(*) FROM changed)
WHERE id = %(audit)s
RETURNING (SELECT count(*) FROM changed);

-- lock_lane_for_act: no relay joins the lane meanwhile.
SELECT id FROM @lane WHERE id = %(lane)s FOR NO KEY UPDATE;

-- remove_events: events that no relay can have in hand leave the queue and enter the journal.
WITH gone AS (
    DELETE FROM @queue AS q
    WHERE q.lane = %(lane)s
      AND q.seq = ANY (%(seqs)s::bigint[])
      AND q.state + 0 = %(state)s
      AND q.claim_token = 0
      AND (q.state IN (3, 4, 6)
           OR q.state IN (1, 2) AND q.due_at > clock_timestamp()
           OR NOT EXISTS (SELECT FROM @lease AS l
                          WHERE l.lane = %(lane)s AND l.expires_at >= clock_timestamp()))
    RETURNING q.seq
),
journal AS (
    INSERT INTO @delivery (smallest, largest, lane, events, verdict, relay, seqs)
    SELECT min(gone.seq), max(gone.seq), %(lane)s, count(*), %(verdict)s,
           (SELECT actor FROM @audit WHERE id = %(audit)s), array_agg(gone.seq)
    FROM gone
    HAVING count(*) > 0
),
noted AS (
    INSERT INTO @audit_event (seq, audit, lane)
    SELECT gone.seq, %(audit)s, %(lane)s FROM gone
)
UPDATE @audit SET events = events + (SELECT count(*) FROM gone)
WHERE id = %(audit)s
RETURNING (SELECT count(*) FROM gone);

-- count_edits: how often these events have been edited.
SELECT d.seq, count(*) FROM @edit AS d WHERE d.seq = ANY (%(seqs)s::bigint[]) GROUP BY d.seq;

-- lock_target: one queued event, so that two who edit it take turns.
SELECT seq FROM @queue WHERE lane = %(lane)s AND seq = %(seq)s FOR UPDATE;

-- edit_event: change a dead event, unless it was edited since, and keep what it was.
WITH kept AS (
    INSERT INTO @edit (seq, actor, payload, content_type, headers)
    SELECT e.seq, (SELECT actor FROM @audit WHERE id = %(audit)s),
           e.payload, e.content_type, e.headers
    FROM @event AS e
    JOIN @queue AS q ON q.seq = e.seq AND q.lane = %(lane)s
    WHERE e.seq = %(seq)s
      AND q.state = %(state)s AND q.state IN (4, 6) AND q.claim_token = 0
      AND (SELECT count(*) FROM @edit AS d WHERE d.seq = %(seq)s) = %(edits)s
    RETURNING seq
),
changed AS (
    UPDATE @event AS e
    SET payload = %(payload)s, content_type = %(content_type)s, headers = %(headers)s::json
    FROM kept
    WHERE e.seq = kept.seq
    RETURNING e.seq
),
noted AS (
    INSERT INTO @audit_event (seq, audit, lane)
    SELECT changed.seq, %(audit)s, %(lane)s FROM changed
)
UPDATE @audit SET events = events + (SELECT count(*) FROM changed)
WHERE id = %(audit)s
RETURNING (SELECT count(*) FROM changed);

-- find_in_log: events of the log that match and, of a lane, have left it; oldest first.
SELECT e.seq
FROM @event AS e
WHERE e.seq > %(above_seq)s
  AND (%(aggregate_type)s::text IS NULL OR e.aggregate_type = %(aggregate_type)s)
  AND (%(aggregate_id)s::text IS NULL OR e.aggregate_id = %(aggregate_id)s)
  AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s)
  AND (%(since)s::timestamptz IS NULL OR e.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR e.created_at < %(until)s)
  AND (%(lane)s::integer IS NULL
       OR EXISTS (SELECT FROM @delivery AS d
                  WHERE int8range(d.smallest, d.largest, '[]') @> e.seq
                    AND d.lane = %(lane)s AND e.seq = ANY (d.seqs)))
ORDER BY e.seq
LIMIT %(limit)s;

-- find_in_log_by_id: these events of the log, oldest first.
SELECT e.seq
FROM @event AS e
WHERE e.id = ANY (%(ids)s::uuid[])
  AND e.seq > %(above_seq)s
  AND (%(lane)s::integer IS NULL
       OR EXISTS (SELECT FROM @delivery AS d
                  WHERE int8range(d.smallest, d.largest, '[]') @> e.seq
                    AND d.lane = %(lane)s AND e.seq = ANY (d.seqs)))
ORDER BY e.seq
LIMIT %(limit)s;

-- replay_events: events of the log enter a lane's queue as parked; the rest is as the trigger does.
WITH added AS (
    INSERT INTO @queue (lane, seq, event_id, key, bucket, state)
    SELECT %(lane)s, event.seq, event.id, event.key, event.key & 63, 3
    FROM (
        SELECT e.seq, e.id,
               hashtextextended(e.aggregate_type || chr(31) || e.aggregate_id, 0) AS key
        FROM @event AS e
        WHERE e.seq = ANY (%(seqs)s::bigint[])
        OFFSET 0
    ) AS event
    ON CONFLICT DO NOTHING
    RETURNING seq
),
noted AS (
    INSERT INTO @audit_event (seq, audit, lane)
    SELECT added.seq, %(audit)s, %(lane)s FROM added
)
UPDATE @audit SET events = events + (SELECT count(*) FROM added)
WHERE id = %(audit)s
RETURNING (SELECT count(*) FROM added);

-- blocked_keys: keys whose first blocking event is retrying or dead, with how many wait behind it.
-- The recursion steps from key to key, so 1M events parked behind one key cost one step.
WITH RECURSIVE head (key, seq, state, attempts, due_at, last_error) AS (
    (SELECT q.key, q.seq, q.state, q.attempts, q.due_at, q.last_error FROM @queue AS q
     WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5)
     ORDER BY q.lane, q.key, q.seq LIMIT 1)
    UNION ALL
    SELECT following.* FROM head
    CROSS JOIN LATERAL (
        SELECT q.key, q.seq, q.state, q.attempts, q.due_at, q.last_error FROM @queue AS q
        WHERE q.lane = %(lane)s AND q.state IN (1, 3, 4, 5) AND q.key > head.key
        ORDER BY q.lane, q.key, q.seq LIMIT 1
    ) AS following
),
standing AS MATERIALIZED (SELECT * FROM head WHERE state IN (1, 4) LIMIT %(limit)s)
SELECT
    e.aggregate_type, e.aggregate_id, standing.seq, e.id::text, e.event_type, standing.state,
    standing.attempts, standing.due_at, standing.last_error,
    coalesce((SELECT min(a.at) FROM @attempt AS a
              WHERE a.seq = standing.seq AND a.lane = %(lane)s), e.created_at),
    (SELECT count(*) FROM (
        SELECT FROM @queue AS w
        WHERE w.lane = %(lane)s AND w.key = standing.key AND w.state IN (1, 3, 4, 5)
          AND w.seq > standing.seq
        LIMIT %(cap)s) AS capped),
    standing.key
FROM standing
CROSS JOIN LATERAL (SELECT * FROM @event WHERE seq = standing.seq OFFSET 0) AS e;

-- pending_after: keys of the first pending events behind one event, for those that nobody parked yet.
SELECT q.key, q.seq FROM @queue AS q
WHERE q.lane = %(lane)s AND q.state = 0 AND q.seq > %(seq)s
ORDER BY q.lane, q.seq
LIMIT %(cap)s;

-- lane_names: all lanes.
SELECT id, name, paused FROM @lane ORDER BY id;

-- attempts: that failed at one event, oldest first.
SELECT coalesce(lane.name, '(removed)'), a.attempt, a.at, a.relay, a.error
FROM @attempt AS a
LEFT JOIN @lane AS lane ON lane.id = a.lane
WHERE a.seq = %(seq)s
ORDER BY a.id;

-- settlements: how one event left its lanes' queues, oldest first.
SELECT coalesce(lane.name, '(removed)'), d.verdict, d.at, d.relay
FROM @delivery AS d
LEFT JOIN @lane AS lane ON lane.id = d.lane
WHERE int8range(d.smallest, d.largest, '[]') @> %(seq)s::bigint
  AND %(seq)s = ANY (d.seqs)
ORDER BY d.id + 0;

-- edits: what one event was before, oldest first.
SELECT d.at, d.actor, d.payload, d.content_type, d.headers::text
FROM @edit AS d
WHERE d.seq = %(seq)s
ORDER BY d.id;

-- acts: of operators that changed one event, oldest first.
SELECT a.id, a.at, a.actor, a.action, lane.name, a.detail, a.events
FROM @audit_event AS c
JOIN @audit AS a ON a.id = c.audit
LEFT JOIN @lane AS lane ON lane.id = c.lane
WHERE c.seq = %(seq)s
ORDER BY a.id, c.lane;

-- stuck_behind: the events that block one event's key in its lanes.
SELECT lane.name, b.seq, e.id::text, e.event_type, b.state, b.last_error
FROM @queue AS q
JOIN @lane AS lane ON lane.id = q.lane
CROSS JOIN LATERAL (
    SELECT f.seq, f.state, f.last_error FROM @queue AS f
    WHERE f.lane = q.lane AND f.key = q.key AND f.seq < q.seq AND f.state IN (1, 3, 4, 5)
    ORDER BY f.lane, f.key, f.seq LIMIT 1
) AS b
JOIN @event AS e ON e.seq = b.seq
WHERE q.seq = %(seq)s
ORDER BY lane.id;

-- holds: who has one event in hand in its lanes: the relay of its claim, or of its bucket's lease.
SELECT
    lane.name, q.state, q.claim_token, held.relay,
    EXTRACT(epoch FROM CASE WHEN q.state = 5 THEN q.due_at ELSE held.expires_at END
                       - clock_timestamp())::double precision,
    EXISTS (SELECT FROM @lease AS l
            WHERE l.lane = q.lane AND l.strategy = 'competing' AND l.expires_at > clock_timestamp())
FROM @queue AS q
JOIN @lane AS lane ON lane.id = q.lane
LEFT JOIN @lease AS held ON held.lane = q.lane
    AND CASE WHEN q.state = 5 THEN held.token = q.claim_token
        ELSE q.bucket = ANY (held.buckets) AND held.expires_at > clock_timestamp() END
WHERE q.seq = %(seq)s AND q.state + 0 NOT IN (4, 6)
ORDER BY lane.id;

-- completed: when downstream said that one event is done.
SELECT c.completed_at FROM @event AS e JOIN @completion AS c ON c.event_id = e.id
WHERE e.seq = %(seq)s;

-- list_audit: what operators did, newest first.
SELECT id, at, actor, action, lane, detail, events FROM @audit
WHERE id < %(before_id)s
ORDER BY id DESC
LIMIT %(limit)s;
