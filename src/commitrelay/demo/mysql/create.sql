CREATE TABLE @orders (
    id      integer PRIMARY KEY,
    status  varchar(20) NOT NULL DEFAULT 'new',
    version bigint NOT NULL DEFAULT 0
) ENGINE = InnoDB;

INSERT INTO @orders (id)
WITH RECURSIVE number (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM number WHERE id < 500)
SELECT id FROM number;
