SELECT q.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.content_type, CAST(e.created_at AS CHAR)
FROM @queue AS q FORCE INDEX (@@queue_hot)
STRAIGHT_JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = 1 AND q.state = 0 AND q.seq > %s
ORDER BY q.seq
LIMIT %s
