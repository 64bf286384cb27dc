DELETE FROM @queue WHERE lane = 1 AND seq IN (SELECT value FROM json_each(?))
