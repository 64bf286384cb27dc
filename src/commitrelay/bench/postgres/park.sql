UPDATE @queue
SET state = CASE WHEN seq = (SELECT min(seq) FROM @queue) THEN 4 ELSE 3 END;
