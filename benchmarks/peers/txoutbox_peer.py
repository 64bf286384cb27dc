"""txoutbox: its relay, publishing to Kafka or RabbitMQ as its README shows."""

from __future__ import annotations

import aio_pika
import asyncpg
from aiokafka import AIOKafkaProducer
from peer import QUEUE_KEYS, Clock, Job, filling, main
from txoutbox import Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

FILL = """
    INSERT INTO outbox (topic, key, payload)
    SELECT $1, (n % $2)::text,
           convert_to('{"number": ' || n || ', "filling": "' || $3 || '"}', 'UTF8')
    FROM generate_series(1, $4::bigint) AS n
"""


async def prepare(job: Job) -> None:
    async with asyncpg.create_pool(job.database, min_size=1, max_size=2) as pool:
        await PostgresStorage(pool).create_schema()
        await pool.execute(FILL, job.topic, QUEUE_KEYS, filling(job), job.events)
        await pool.execute("VACUUM ANALYZE outbox")


async def drain(job: Job, clock: Clock) -> None:
    config = RelayConfig(batch_size=500, concurrency=100) if job.tuned else RelayConfig()
    sending = kafka if job.broker.startswith("kafka") else rabbitmq
    async with asyncpg.create_pool(job.database) as pool:
        send, close = await sending(job, clock)
        relay = Relay(PostgresStorage(pool), send, config=config)
        done = 0
        while done < job.events:
            done += (await relay.run_once()).published
        await close()


async def kafka(job: Job, clock: Clock):
    producer = AIOKafkaProducer(
        bootstrap_servers=job.broker.removeprefix("kafka://"), acks="all", enable_idempotence=True
    )
    await producer.start()

    async def send(message) -> None:
        clock.start()
        await producer.send_and_wait(message.topic, message.payload, key=message.key.encode())

    return send, producer.stop


async def rabbitmq(job: Job, clock: Clock):
    connection = await aio_pika.connect_robust(job.broker)
    channel = await connection.channel(publisher_confirms=True)
    persistent = aio_pika.DeliveryMode.PERSISTENT

    async def send(message) -> None:
        clock.start()
        body = aio_pika.Message(message.payload, delivery_mode=persistent)
        await channel.default_exchange.publish(body, routing_key=message.topic)

    return send, connection.close


if __name__ == "__main__":
    main(prepare, drain)
