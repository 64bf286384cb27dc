CREATE TABLE @orders (
    id      integer PRIMARY KEY,
    status  text NOT NULL DEFAULT 'new',
    version bigint NOT NULL DEFAULT 0
);

INSERT INTO @orders (id) SELECT generate_series(1, 500);
