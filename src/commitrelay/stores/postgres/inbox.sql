-- mark: the event as handled, unless it is. A mark that is being made elsewhere is waited for, by the
-- lock that everybody takes who finds none: so that whoever does not want to wait can tell.
INSERT INTO @inbox (consumer, event_id, token)
SELECT :consumer::text, :event_id::text, :token::bigint
WHERE CASE
    WHEN EXISTS (SELECT FROM @inbox WHERE consumer = :consumer::text AND event_id = :event_id::text)
    THEN false
    ELSE pg_advisory_xact_lock(hashtextextended(
        :consumer::text || chr(31) || :event_id::text, '@inbox'::regclass::oid::bigint)
    ) IS NOT NULL
END
ON CONFLICT DO NOTHING;

-- mark_at_once: the same without waiting; no row if it is marked, or being marked elsewhere.
INSERT INTO @inbox (consumer, event_id, token)
SELECT :consumer::text, :event_id::text, :token::bigint
WHERE CASE
    WHEN EXISTS (SELECT FROM @inbox WHERE consumer = :consumer::text AND event_id = :event_id::text)
    THEN false
    ELSE pg_try_advisory_xact_lock(hashtextextended(
        :consumer::text || chr(31) || :event_id::text, '@inbox'::regclass::oid::bigint))
END
ON CONFLICT DO NOTHING;

-- find_mark: one row if the event is marked.
SELECT 1 FROM @inbox WHERE consumer = :consumer::text AND event_id = :event_id::text;

-- unmark: take back this mark, and no other one of the same event.
DELETE FROM @inbox
WHERE consumer = :consumer::text AND event_id = :event_id::text AND token = :token::bigint;

-- begin_event: take the event's row, waiting for whoever has just begun it.
INSERT INTO @completion (event_id)
SELECT id FROM @event WHERE id = :id::text::uuid
ON CONFLICT DO NOTHING;

-- lock_open_event: the same if it was begun before; no row if it is completed.
SELECT 1 FROM @completion
WHERE event_id = :id::text::uuid AND completed_at IS NULL
FOR UPDATE;

-- complete_event: mark it; no row if it is.
UPDATE @completion SET completed_at = clock_timestamp()
WHERE event_id = :id::text::uuid AND completed_at IS NULL;

-- find_completion: one row if the event was ever begun.
SELECT 1 FROM @completion WHERE event_id = :id::text::uuid;
