SET SESSION sql_notes = 0
    /*M!100601 , max_recursive_iterations = 4294967295 */
    /*!80001 , cte_max_recursion_depth = 4294967295 */;
INSERT INTO @event (aggregate_type, aggregate_id, event_type, payload)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < %(events)s)
SELECT %(aggregate_type)s, mod(n, %(keys)s), 'OrderPaid',
       concat('{"number": ', n, ', "filling": "', %(filling)s, '"}')
FROM number;
