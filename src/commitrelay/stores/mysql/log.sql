-- What reads the log and the journal as they grow, and writes them away.

-- settled: the next events of the log: is each old enough, and in no lane's queue?
SELECT page.seq, page.aged,
       page.aged AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = page.seq)
FROM (
    SELECT e.seq AS seq,
           e.created_at < utc_timestamp(6) - INTERVAL %(older_than_seconds)s SECOND AS aged
    FROM @event AS e FORCE INDEX (PRIMARY)
    WHERE e.seq > %(after_seq)s
    ORDER BY e.seq
    LIMIT %(limit)s
) AS page
ORDER BY page.seq;

-- lock_log: purge and replay take turns, so that nothing is deleted that is about to be queued.
-- Writers do not take it.
SELECT number FROM @migration WHERE number = 1 FOR UPDATE;

-- delete_completions: the marks of these events, but for those that a lane has to deliver.
DELETE c FROM @completion AS c
JOIN @event AS e ON e.id = c.event_id
WHERE e.seq IN (%(seqs)s)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = e.seq);

-- delete_attempts: the failed attempts at these events.
DELETE a FROM @attempt AS a
WHERE a.seq IN (%(seqs)s)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = a.seq);

-- delete_edits: what these events were before they were edited.
DELETE x FROM @edit AS x
WHERE x.seq IN (%(seqs)s)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = x.seq);

-- delete_audit_events: that operators changed these events; what they did stays.
DELETE a FROM @audit_event AS a
WHERE a.seq IN (%(seqs)s)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = a.seq);

-- delete_settled: these events, but for those that a lane has to deliver.
DELETE e FROM @event AS e
WHERE e.seq IN (%(seqs)s)
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = e.seq);

-- find_empty_batches: old batches of which no event is left.
SELECT d.id FROM @delivery AS d FORCE INDEX (PRIMARY)
WHERE d.at < utc_timestamp(6) - INTERVAL %(older_than_seconds)s SECOND
  AND NOT EXISTS (SELECT 1 FROM @event AS e
                  WHERE e.seq BETWEEN d.smallest AND d.largest AND find_in_set(e.seq, d.seqs))
ORDER BY d.id
LIMIT %(limit)s;

-- trim_journal: delete these batches of the journal.
DELETE FROM @delivery WHERE id IN (%(ids)s);

-- count_act: how many events an operator's act has changed.
UPDATE @audit SET events = events + %(events)s WHERE id = %(audit)s;

-- read_events: these events, with their payloads or without.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at,
       CASE WHEN %(payloads)s THEN e.payload END
FROM @event AS e FORCE INDEX (PRIMARY)
WHERE e.seq IN (%(seqs)s)
ORDER BY e.seq;

-- end_of_log: the highest numbers of log and journal.
SELECT coalesce((SELECT max(seq) FROM @event), 0), coalesce((SELECT max(id) FROM @delivery), 0);

-- added: events above a seq.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type,
       e.headers, e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e FORCE INDEX (PRIMARY)
WHERE e.seq > %(after_seq)s
ORDER BY e.seq
LIMIT %(limit)s;

-- batches: of the journal, above a number.
SELECT d.id, coalesce(lane.name, '(removed)'), d.verdict, d.at, d.relay, d.seqs
FROM (SELECT * FROM @delivery WHERE id > %(after)s ORDER BY id LIMIT %(limit)s) AS d
LEFT JOIN @lane AS lane ON lane.id = d.lane
ORDER BY d.id;

-- all_lanes: as they were set up.
SELECT lane.id, lane.name, lane.paused, lane.aggregate_types, lane.event_types, lane.created_at,
       (SELECT count(*) FROM @lease AS l WHERE l.lane = lane.id AND l.expires_at > utc_timestamp(6))
FROM @lane AS lane
ORDER BY lane.id;

-- count_lane: events in a lane's queue; counting stops at a cap.
SELECT count(*) FROM (SELECT 1 FROM @queue AS q FORCE INDEX (@@queue_hot)
                      WHERE q.lane = %(lane)s LIMIT %(cap)s) AS capped;

-- set_filter: what a lane takes from now on, if its filter is as it was seen and it is not closed.
UPDATE @lane
SET aggregate_types = %(aggregate_types)s, event_types = %(event_types)s
WHERE name = %(name)s
  AND (aggregate_types IS NULL AND %(seen_aggregate_types)s IS NULL
       OR json_contains(aggregate_types, %(seen_aggregate_types)s)
          AND json_contains(%(seen_aggregate_types)s, aggregate_types))
  AND (event_types IS NULL AND %(seen_event_types)s IS NULL
       OR json_contains(event_types, %(seen_event_types)s)
          AND json_contains(%(seen_event_types)s, event_types))
  AND NOT (paused AND coalesce(aggregate_types = '[]', FALSE)
                  AND coalesce(event_types = '[]', FALSE));

-- close_lane: it matches nothing any more.
UPDATE @lane SET paused = TRUE, aggregate_types = '[]', event_types = '[]' WHERE name = %(name)s;

-- find_in_closed_lane: events in the queue of a lane that is closed.
SELECT q.seq, q.lane FROM @lane AS lane
STRAIGHT_JOIN @queue AS q FORCE INDEX (@@queue_hot) ON q.lane = lane.id
WHERE lane.name = %(name)s AND lane.paused AND lane.aggregate_types = '[]'
  AND lane.event_types = '[]'
LIMIT %(limit)s;

-- empty_lane: take these events out of a lane's queue.
DELETE q FROM @queue AS q FORCE INDEX (PRIMARY)
WHERE q.lane = %(lane)s AND q.seq IN (%(seqs)s);

-- remove_leases: of a lane that is closed and empty.
DELETE l FROM @lease AS l
JOIN @lane AS lane ON lane.id = l.lane
WHERE lane.name = %(name)s AND lane.paused AND lane.aggregate_types = '[]'
  AND lane.event_types = '[]'
  AND NOT EXISTS (SELECT 1 FROM @queue AS q FORCE INDEX (@@queue_hot) WHERE q.lane = lane.id);

-- remove_lane: if it is closed and empty.
DELETE lane FROM @lane AS lane
WHERE lane.name = %(name)s AND lane.paused AND lane.aggregate_types = '[]'
  AND lane.event_types = '[]'
  AND NOT EXISTS (SELECT 1 FROM @queue AS q FORCE INDEX (@@queue_hot) WHERE q.lane = lane.id);
