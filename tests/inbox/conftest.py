from tests.writing.conftest import postgres_outbox, shared_postgres_outbox, sqlite_outbox
from tests.writing.test_add_mysql import outbox_database as mariadb_outbox
from tests.writing.test_add_mysql import shared_outbox

__all__ = [
    "mariadb_outbox",
    "postgres_outbox",
    "shared_outbox",
    "shared_postgres_outbox",
    "sqlite_outbox",
]
