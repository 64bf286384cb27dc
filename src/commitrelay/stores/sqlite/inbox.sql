-- mark: the event as handled, unless it is. SQLite has one writer at a time, so whoever marks an
-- event has waited for the others.
INSERT INTO @inbox (consumer, event_id, token)
VALUES (:consumer, :event_id, :token)
ON CONFLICT DO NOTHING;

-- unmark: take back this mark, and no other one of the same event.
DELETE FROM @inbox WHERE consumer = :consumer AND event_id = :event_id AND token = :token;

-- begin_event: note that the event was begun.
INSERT INTO @completion (event_id)
SELECT id FROM @event WHERE id = :id
ON CONFLICT DO NOTHING;

-- lock_open_event: whether it is still open if it was begun before.
SELECT 1 FROM @completion WHERE event_id = :id AND completed_at IS NULL;

-- complete_event: mark it; no row if it is.
UPDATE @completion SET completed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE event_id = :id AND completed_at IS NULL;

-- find_completion: one row if the event was ever begun.
SELECT 1 FROM @completion WHERE event_id = :id;
