TRUNCATE @event, @queue, @delivery, @lease;
DELETE FROM @lane WHERE name <> 'default';
