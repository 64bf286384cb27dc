ANALYZE TABLE @event, @queue;
