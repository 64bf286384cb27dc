TRUNCATE TABLE @event;
TRUNCATE TABLE @queue;
TRUNCATE TABLE @delivery;
DELETE FROM @lease;
DELETE FROM @lane WHERE name <> 'default';
