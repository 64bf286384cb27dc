DELETE FROM @event;
DELETE FROM @queue;
DELETE FROM @delivery;
DELETE FROM @lease;
DELETE FROM @lane WHERE name <> 'default';
