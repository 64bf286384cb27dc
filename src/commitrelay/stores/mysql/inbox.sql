-- is_mariadb: one row if it is.
SELECT 1 FROM dual WHERE locate('MariaDB', version()) > 0;

-- mark: the event as handled; it fails as a duplicate if it is, and waits while that is open.
INSERT INTO @inbox (consumer, event_id, token) VALUES (:consumer, :event_id, :token);

-- mark_at_once: the same; on MariaDB it fails instead of waiting.
/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
INSERT INTO @inbox (consumer, event_id, token) VALUES (:consumer, :event_id, :token);

-- unmark: take back this mark, and no other one of the same event.
DELETE FROM @inbox WHERE consumer = :consumer AND event_id = :event_id AND token = :token;

-- enter_turnstile: be the only one to wait for this row; no row if somebody else was for too long.
-- In a derived table the lock would be taken twice, and given back once.
SELECT 1 FROM dual
WHERE get_lock(
    sha2(concat_ws(char(31), database(), '@@inbox', :name), 256),
    least(:seconds, @@SESSION.innodb_lock_wait_timeout)
) = 1;

-- leave_turnstile: let the next one wait for it.
SELECT release_lock(sha2(concat_ws(char(31), database(), '@@inbox', :name), 256));

-- shorten_waits: MySQL waits for a second at least.
SET @`commitrelay_waits` = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1;

-- restore_waits: as the session had it.
SET SESSION innodb_lock_wait_timeout = @`commitrelay_waits`;

-- begin_event: take the event's row, waiting for whoever has it. On a duplicate an INSERT alone would
-- share the lock, and two that share it could not both go on.
INSERT INTO @completion (event_id)
SELECT id FROM @event WHERE id = :id
ON DUPLICATE KEY UPDATE event_id = @completion.event_id;

-- begin_event_at_once: the same; on MariaDB it fails instead of waiting.
/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
INSERT INTO @completion (event_id)
SELECT id FROM @event WHERE id = :id
ON DUPLICATE KEY UPDATE event_id = @completion.event_id;

-- lock_open_event: one row if it was begun and is not completed, as it is now, whatever was read before.
SELECT 1 FROM @completion WHERE event_id = :id AND completed_at IS NULL FOR UPDATE;

-- complete_event: mark it; no row if it is.
UPDATE @completion SET completed_at = utc_timestamp(6)
WHERE event_id = :id AND completed_at IS NULL;

-- find_completion: one row if the event was ever begun.
SELECT 1 FROM @completion WHERE event_id = :id FOR UPDATE;
