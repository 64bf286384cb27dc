INSERT INTO @event (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, %s, %s)
