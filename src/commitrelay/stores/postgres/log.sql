-- What reads the log and the journal as they grow, and writes them away.

-- settled: the next events of the log: is each old enough, and in no lane's queue?
SELECT page.seq, page.aged,
       page.aged AND (SELECT q.seq FROM @queue AS q WHERE q.seq = page.seq LIMIT 1) IS NULL
FROM (
    SELECT e.seq,
           e.created_at < clock_timestamp() - %(older_than_seconds)s * interval '1 second' AS aged
    FROM @event AS e
    WHERE e.seq > %(after_seq)s
    ORDER BY e.seq
    LIMIT %(limit)s
) AS page
ORDER BY page.seq;

-- lock_log: purge and replay take turns, so that nothing is deleted that is about to be queued.
-- Writers do not take it.
SELECT pg_advisory_xact_lock(hashtextextended('commitrelay log ' || '@event'::regclass::oid, 0));

-- delete_settled: these events, but for those that a lane has to deliver, with all that is kept
-- about them; that an operator did something stays.
WITH gone AS (
    DELETE FROM @event AS e
    WHERE e.seq = ANY (%(seqs)s::bigint[])
      AND (SELECT q.seq FROM @queue AS q WHERE q.seq = e.seq LIMIT 1) IS NULL
    RETURNING e.seq, e.id
),
attempts AS (DELETE FROM @attempt WHERE seq = ANY (ARRAY(SELECT gone.seq FROM gone))),
edits AS (DELETE FROM @edit WHERE seq = ANY (ARRAY(SELECT gone.seq FROM gone))),
acts AS (DELETE FROM @audit_event WHERE seq = ANY (ARRAY(SELECT gone.seq FROM gone))),
marks AS (DELETE FROM @completion WHERE event_id = ANY (ARRAY(SELECT gone.id FROM gone)))
SELECT count(*) FROM gone;

-- trim_journal: old batches of which no event is left.
DELETE FROM @delivery
WHERE id = ANY (ARRAY(
    SELECT d.id FROM @delivery AS d
    WHERE d.at < clock_timestamp() - %(older_than_seconds)s * interval '1 second'
      AND (SELECT e.seq FROM @event AS e WHERE e.seq = ANY (d.seqs) LIMIT 1) IS NULL
    ORDER BY d.id
    LIMIT %(limit)s));

-- read_events: these events, with their payloads or without.
SELECT e.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at,
       CASE WHEN %(payloads)s THEN e.payload END
FROM @event AS e
WHERE e.seq = ANY (%(seqs)s::bigint[])
ORDER BY e.seq;

-- end_of_log: the highest numbers of log and journal.
SELECT coalesce((SELECT e.seq FROM @event AS e ORDER BY e.seq DESC LIMIT 1), 0),
       coalesce((SELECT d.id FROM @delivery AS d ORDER BY d.id DESC LIMIT 1), 0);

-- added: events above a seq.
SELECT e.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq > %(after_seq)s
ORDER BY e.seq
LIMIT %(limit)s;

-- batches: of the journal, above a number.
SELECT d.id, coalesce(lane.name, '(removed)'), d.verdict, d.at, d.relay, d.seqs
FROM (SELECT * FROM @delivery WHERE id > %(after)s ORDER BY id LIMIT %(limit)s) AS d
LEFT JOIN @lane AS lane ON lane.id = d.lane
ORDER BY d.id;

-- all_lanes: as they were set up; counting stops at a cap.
SELECT lane.name, lane.paused, lane.aggregate_types, lane.event_types, lane.created_at,
       (SELECT count(*) FROM (
            (SELECT FROM @queue AS q WHERE q.lane = lane.id AND q.state = 0 LIMIT %(cap)s)
            UNION ALL
            (SELECT FROM @queue AS q
             WHERE q.lane = lane.id AND q.state IN (1, 2, 5) LIMIT %(cap)s)
            UNION ALL
            (SELECT FROM @queue AS q
             WHERE q.lane = lane.id AND q.state IN (4, 6) LIMIT %(cap)s)
            UNION ALL
            (SELECT FROM @queue AS q
             WHERE q.lane = lane.id AND q.state IN (1, 3, 4, 5) AND q.state = 3 LIMIT %(cap)s)
        ) AS capped),
       (SELECT count(*) FROM @lease AS l
        WHERE l.lane = lane.id AND l.expires_at > clock_timestamp())
FROM @lane AS lane
ORDER BY lane.id;

-- set_filter: what a lane takes from now on, if its filter is as it was seen and it is not closed.
UPDATE @lane
SET aggregate_types = %(aggregate_types)s::text[], event_types = %(event_types)s::text[]
WHERE name = %(name)s
  AND aggregate_types IS NOT DISTINCT FROM %(seen_aggregate_types)s::text[]
  AND event_types IS NOT DISTINCT FROM %(seen_event_types)s::text[]
  AND (paused AND aggregate_types = '{}' AND event_types = '{}') IS NOT TRUE;

-- close_lane: it matches nothing any more.
UPDATE @lane SET paused = true, aggregate_types = '{}', event_types = '{}' WHERE name = %(name)s;

-- empty_lane: take events out of a closed lane's queue.
WITH closed AS (
    SELECT id FROM @lane
    WHERE name = %(name)s AND paused AND aggregate_types = '{}' AND event_types = '{}'
)
DELETE FROM @queue
WHERE (seq, lane) IN (
    SELECT q.seq, q.lane FROM @queue AS q JOIN closed ON closed.id = q.lane
    LIMIT %(limit)s);

-- remove_leases: of a lane that is closed and empty.
DELETE FROM @lease WHERE lane = (
    SELECT id FROM @lane AS lane
    WHERE name = %(name)s AND paused AND aggregate_types = '{}' AND event_types = '{}'
      AND NOT EXISTS (SELECT FROM @queue AS q WHERE q.lane = lane.id));

-- remove_lane: if it is closed and empty.
DELETE FROM @lane AS lane
WHERE name = %(name)s AND paused AND aggregate_types = '{}' AND event_types = '{}'
  AND NOT EXISTS (SELECT FROM @queue AS q WHERE q.lane = lane.id);

-- count_act: how many events an operator's act has changed.
UPDATE @audit SET events = events + %(events)s WHERE id = %(audit)s;
