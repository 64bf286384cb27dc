-- What reads the log and the journal as they grow, and writes them away.

-- settled: the next events of the log: is each old enough, and in no lane's queue?
SELECT page.seq, page.aged,
       page.aged AND NOT EXISTS (SELECT 1 FROM @lane AS lane
                                 CROSS JOIN @queue AS q ON q.lane = lane.id AND q.seq = page.seq)
FROM (
    SELECT e.seq, (julianday(e.created_at) - 2440587.5) * 86400000.0 < :before_ms AS aged
    FROM @event AS e
    WHERE e.seq > :after_seq
    ORDER BY e.seq
    LIMIT :limit
) AS page
ORDER BY page.seq;

-- delete_settled: these events, but for those that a lane has to deliver.
DELETE FROM @event
WHERE seq IN (SELECT value FROM json_each(:seqs))
  AND NOT EXISTS (SELECT 1 FROM @lane AS lane
                  CROSS JOIN @queue AS q ON q.lane = lane.id AND q.seq = @event.seq)
RETURNING seq, id;

-- delete_attempts: the failed attempts at deleted events.
DELETE FROM @attempt WHERE seq IN (SELECT value FROM json_each(:seqs));

-- delete_edits: what deleted events were before they were edited.
DELETE FROM @edit WHERE seq IN (SELECT value FROM json_each(:seqs));

-- delete_audit_events: that operators changed deleted events; what they did stays.
DELETE FROM @audit_event WHERE seq IN (SELECT value FROM json_each(:seqs));

-- delete_completions: the marks of deleted events.
DELETE FROM @completion WHERE event_id IN (SELECT value FROM json_each(:ids));

-- trim_journal: old batches of which no event is left.
DELETE FROM @delivery
WHERE id IN (
    SELECT d.id FROM @delivery AS d
    WHERE d.at < :before_ms
      AND NOT EXISTS (SELECT 1 FROM json_each(d.seqs) AS s
                      CROSS JOIN @event AS e ON e.seq = s.value)
    ORDER BY d.id
    LIMIT :limit);

-- count_act: how many events an operator's act has changed.
UPDATE @audit SET events = events + :events WHERE id = :audit;

-- read_events: these events, with their payloads or without.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type, e.headers,
       e.idempotency_key, e.created_at, e.deliver_at,
       CASE WHEN :payloads THEN CAST(e.payload AS BLOB) END
FROM @event AS e
WHERE e.seq IN (SELECT value FROM json_each(:seqs))
ORDER BY e.seq;

-- end_of_log: the highest numbers of log and journal.
SELECT coalesce((SELECT max(seq) FROM @event), 0), coalesce((SELECT max(id) FROM @delivery), 0);

-- added: events above a seq.
SELECT e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.content_type, e.headers,
       e.idempotency_key, e.created_at, e.deliver_at, NULL
FROM @event AS e
WHERE e.seq > :after_seq
ORDER BY e.seq
LIMIT :limit;

-- batches: of the journal, above a number.
SELECT d.id, coalesce(lane.name, '(removed)'), d.verdict, d.at, d.relay, d.seqs
FROM (SELECT * FROM @delivery WHERE id > :after ORDER BY id LIMIT :limit) AS d
LEFT JOIN @lane AS lane ON lane.id = d.lane
ORDER BY d.id;

-- all_lanes: as they were set up; counting stops at a cap.
SELECT lane.name, lane.paused, lane.aggregate_types, lane.event_types, lane.created_at,
       (SELECT count(*) FROM (SELECT 1 FROM @queue AS q WHERE q.lane = lane.id LIMIT :cap)),
       (SELECT count(*) FROM @lease AS l WHERE l.lane = lane.id AND l.expires_at > :now_ms)
FROM @lane AS lane
ORDER BY lane.id;

-- lane_filter: what a lane takes, unless it is closed.
SELECT aggregate_types, event_types FROM @lane
WHERE name = :name
  AND NOT (paused AND aggregate_types IS '[]' AND event_types IS '[]');

-- set_filter: what a lane takes from now on.
UPDATE @lane SET aggregate_types = :aggregate_types, event_types = :event_types
WHERE name = :name;

-- close_lane: it matches nothing any more.
UPDATE @lane SET paused = 1, aggregate_types = '[]', event_types = '[]' WHERE name = :name;

-- empty_lane: take events out of a closed lane's queue.
DELETE FROM @queue
WHERE lane = (SELECT id FROM @lane
              WHERE name = :name AND paused = 1 AND aggregate_types = '[]' AND event_types = '[]')
  AND seq IN (SELECT q.seq FROM @queue AS q
              WHERE q.lane = (SELECT id FROM @lane WHERE name = :name)
              ORDER BY q.seq LIMIT :limit);

-- remove_leases: of a lane that is closed and empty.
DELETE FROM @lease WHERE lane = (
    SELECT id FROM @lane AS lane
    WHERE name = :name AND paused = 1 AND aggregate_types = '[]' AND event_types = '[]'
      AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = lane.id));

-- remove_lane: if it is closed and empty.
DELETE FROM @lane
WHERE name = :name AND paused = 1 AND aggregate_types = '[]' AND event_types = '[]'
  AND NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = @lane.id);
