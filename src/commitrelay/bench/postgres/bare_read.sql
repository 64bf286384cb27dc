SELECT q.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.content_type, e.created_at::text
FROM @queue AS q
JOIN @event AS e ON e.seq = q.seq
WHERE q.lane = 1 AND q.state = 0 AND q.seq > %(above_seq)s AND e.seq > %(above_seq)s
ORDER BY q.seq
LIMIT %(limit)s
