INSERT INTO @delivery (smallest, largest, at, lane, events, verdict, relay, seqs)
SELECT min(e.seq), max(e.seq), 1000 * CAST(strftime('%s', 'now') AS INTEGER),
       (SELECT id FROM @lane WHERE name = 'default'), count(*), 0, 'bench', json_group_array(e.seq)
FROM @event AS e
GROUP BY e.seq >> 12;
DELETE FROM @queue;
