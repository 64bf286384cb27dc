"""The outbox in PostgreSQL."""

from importlib.util import find_spec

from commitrelay.errors import MissingExtra

if find_spec("psycopg") is None:
    raise MissingExtra("postgres", "using a PostgreSQL database")
