UPDATE @queue AS q
JOIN (SELECT min(seq) AS seq FROM @queue) AS head
SET q.state = CASE WHEN q.seq = head.seq THEN 4 ELSE 3 END;
