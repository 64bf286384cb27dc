INSERT INTO @delivery (smallest, largest, lane, events, verdict, relay, seqs)
SELECT min(e.seq), max(e.seq), (SELECT id FROM @lane WHERE name = 'default'), count(*), 0, 'bench',
       array_agg(e.seq ORDER BY e.seq)
FROM @event AS e
GROUP BY e.seq / 1000;
TRUNCATE @queue;
