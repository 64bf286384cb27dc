"""What docs/how-to/consume.md shows works as it stands, and with no more rights than it says."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from commitrelay.event import Event
from tests.acceptance.cli import as_json
from tests.consumer import services

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/consume.md").read_text("utf-8")


def test_the_example_with_an_account_that_has_the_rights_of_the_page(
    postgres_database: str, tmp_path: Path
) -> None:
    (code,) = re.findall(r"```python\n(# billing\.py\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "billing.py").write_text(code)
    services.initialise(postgres_database)
    role = "consumer_" + urlsplit(postgres_database).path.strip("/")
    for statement in (
        "CREATE TABLE charge (order_id text, total integer)",
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f"GRANT INSERT ON charge, outbox_event TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_inbox, outbox_reader, outbox_start "
        f"TO {role}",
        f"GRANT SELECT ON outbox_migration TO {role}",
    ):
        services.execute(postgres_database, statement)
    placed = [Event("Order", n, "OrderPlaced", {"total": n, "currency": "EUR"}) for n in range(5)]
    services.publish(tmp_path / "topics", placed, topic="order.events")
    parts = urlsplit(postgres_database)
    place = parts.netloc.rpartition("@")[2]
    account = parts._replace(netloc=f"{role}:secret@{place}").geturl()
    try:
        done = as_json(
            "consume", "--module", "billing", "--until-idle", cwd=tmp_path,
            COMMITRELAY_DATABASE=account,
            COMMITRELAY_FROM=f"file://{tmp_path}/topics?topic=order.events",
        )  # fmt: skip
    finally:
        services.execute(postgres_database, f"DROP OWNED BY {role}")
        services.execute(postgres_database, f"DROP ROLE {role}")
    assert done["handled"] == 5
    rows = services.query(postgres_database, "SELECT order_id, total FROM charge ORDER BY 2")
    assert rows == [(str(n), n) for n in range(5)]
    paid = "SELECT count(*) FROM outbox_event WHERE event_type = 'OrderPaid'"
    assert services.query(postgres_database, paid) == [(5,)]
