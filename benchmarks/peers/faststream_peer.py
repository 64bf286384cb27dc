"""faststream-outbox: its subscriber with a decorated publisher, as its README shows."""

from __future__ import annotations

import asyncio

import asyncpg
from faststream.kafka import KafkaBroker
from faststream.rabbit import RabbitBroker, RabbitQueue
from faststream_outbox import OutboxBroker, make_outbox_table
from peer import Clock, Job, filling, main
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

QUEUE = "orders"
FILL = """
    INSERT INTO outbox (queue, payload, headers)
    SELECT $1, convert_to('{"number": ' || n || ', "filling": "' || $2 || '"}', 'UTF8'),
           jsonb_build_object('content-type', 'application/json', 'correlation_id', n::text)
    FROM generate_series(1, $3::bigint) AS n
"""
TUNED = {
    "max_workers": 50,
    "fetch_batch_size": 500,
    "min_fetch_interval": 0.01,
    "terminal_flush_batch_size": 100,
}


async def prepare(job: Job) -> None:
    metadata = MetaData()
    make_outbox_table(metadata, table_name="outbox")
    engine = create_async_engine(driver(job))
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    connection = await asyncpg.connect(job.database)
    await connection.execute(FILL, QUEUE, filling(job), job.events)
    await connection.execute("VACUUM ANALYZE outbox")
    await connection.close()


async def drain(job: Job, clock: Clock) -> None:
    settings = TUNED if job.tuned else {}
    table = make_outbox_table(MetaData(), table_name="outbox")
    engine = create_async_engine(driver(job), pool_size=20, max_overflow=40)
    outbox = OutboxBroker(engine, outbox_table=table)
    broker, publisher = kafka(job) if job.broker.startswith("kafka") else rabbitmq(job)

    @publisher
    @outbox.subscriber(QUEUE, **settings)
    async def relay(body: dict) -> dict:
        clock.start()
        return body

    await broker.connect()
    await outbox.start()
    connection = await asyncpg.connect(job.database)
    while await connection.fetchval("SELECT EXISTS (SELECT FROM outbox)"):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await connection.close()
    await outbox.stop()
    await broker.stop()
    await engine.dispose()


def kafka(job: Job):
    broker = KafkaBroker(job.broker.removeprefix("kafka://"), acks="all", enable_idempotence=True)
    return broker, broker.publisher(job.topic)


def rabbitmq(job: Job):
    broker = RabbitBroker(job.broker)
    return broker, broker.publisher(RabbitQueue(job.topic, declare=False), persist=True)


def driver(job: Job) -> str:
    return job.database.replace("postgresql://", "postgresql+asyncpg://", 1)


if __name__ == "__main__":
    main(prepare, drain)
