INSERT INTO @event (aggregate_type, aggregate_id, event_type, payload)
SELECT %(aggregate_type)s::text, mod(n, %(keys)s::bigint)::text, 'OrderPaid',
       convert_to('{"number": ' || n || ', "filling": "' || %(filling)s::text || '"}', 'UTF8')
FROM generate_series(1, %(events)s::bigint) AS n;
