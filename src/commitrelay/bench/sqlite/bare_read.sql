SELECT q.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.content_type, e.created_at
FROM @queue AS q INDEXED BY @queue_hot
CROSS JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = 1 AND q.state = 0 AND q.seq > ?
ORDER BY q.seq
LIMIT ?
