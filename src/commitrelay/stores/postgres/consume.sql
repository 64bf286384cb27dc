-- take_over: this reader follows another one, which died, on a partition.
UPDATE @reader SET reader = :reader::text, deaths = deaths + 1
WHERE consumer = :consumer::text AND partition = :partition::text;

-- begin_reading: this reader is the first one of a partition, or the last one let go of it.
INSERT INTO @reader (reader, consumer, partition)
VALUES (:reader::text, :consumer::text, :partition::text);

-- has_deadly_history: found if at least so many readers of a partition died in a row.
SELECT 1 FROM @reader
WHERE consumer = :consumer::text AND partition = :partition::text AND deaths >= :deaths::integer;

-- outlive: this reader has got over what the others died of.
UPDATE @reader SET deaths = 0
WHERE reader = :reader::text AND consumer = :consumer::text AND partition = :partition::text;

-- end_reading: this reader lets go of a partition.
DELETE FROM @reader
WHERE reader = :reader::text AND consumer = :consumer::text AND partition = :partition::text;

-- is_deadly: found if an event was started at least so often and never ended.
SELECT 1 FROM @start
WHERE consumer = :consumer::text AND event_id = :event_id::text AND starts >= :starts::integer;

-- start_again: an event that was started before and did not end.
UPDATE @start SET starts = starts + 1
WHERE consumer = :consumer::text AND event_id = :event_id::text;

-- start_first: an event is started with care for the first time.
INSERT INTO @start (consumer, event_id)
VALUES (:consumer::text, :event_id::text);

-- end_start: an event that was started with care has ended, well or not.
DELETE FROM @start
WHERE consumer = :consumer::text AND event_id = :event_id::text;
