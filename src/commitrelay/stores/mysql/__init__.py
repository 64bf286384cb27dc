"""The outbox in MySQL or MariaDB."""

from importlib.util import find_spec

from commitrelay.errors import MissingExtra

if find_spec("asyncmy") is None:
    raise MissingExtra("mysql", "using a MySQL or MariaDB database")
