SET SESSION group_concat_max_len = 4194304;
INSERT INTO @delivery (page, smallest, largest, at, lane, events, verdict, relay, seqs)
SELECT e.seq >> 12, min(e.seq), max(e.seq), utc_timestamp(6),
       (SELECT id FROM @lane WHERE name = 'default'), count(*), 0, 'bench',
       group_concat(e.seq ORDER BY e.seq)
FROM @event AS e
GROUP BY e.seq >> 12;
TRUNCATE TABLE @queue;
