"""Debezium: Kafka Connect in one process, reading a slot that was filled beforehand."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
from confluent_kafka import Consumer, TopicPartition
from peer import QUEUE_KEYS, peak_memory_bytes

from commitrelay.bench import usage

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "commitrelay"
JARS = CACHE / f"debezium-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
SLOT = "commitrelay_peer"
START_SECONDS, DRAIN_SECONDS = 90.0, 600.0
ROWS_PER_TRANSACTION = 1000

TABLE = """
    CREATE TABLE outbox (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
        aggregateid text NOT NULL, type text NOT NULL, payload bytea NOT NULL
    )
"""
FILL = """
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
    SELECT 'Order', mod(n, %s)::text, 'OrderPaid',
           convert_to('{"number": ' || n || ', "filling": "' || %s || '"}', 'UTF8')
    FROM generate_series(%s::bigint, %s::bigint) AS n
"""


def install() -> str | None:
    """Why it cannot be had, or nothing."""
    if JARS.exists():
        return None
    if not shutil.which("mvn") or not shutil.which("java"):
        return "needs Java and Maven"
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        jars = Path(scratch) / "jars"
        command = ["mvn", "-B", "-q", "-f", POM, *copy, f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"Maven failed: {done.stdout.strip().splitlines()[-1:]}"
        jars.rename(JARS)
    return None


def drain(database: str, bootstrap: str, topic: str, events: int, payload_bytes: int) -> dict:
    """A result as the Python peers give it."""
    fill(database, events, payload_bytes)
    with tempfile.TemporaryDirectory() as directory:
        write_settings(Path(directory), database, bootstrap, topic)
        log = Path(directory) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command(Path(directory)), stdout=output, stderr=subprocess.STDOUT, cwd=directory
            )
        try:
            return watch(process, log, bootstrap, topic, events)
        finally:
            process.kill()
            process.wait()


def fill(database: str, events: int, payload_bytes: int) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute("CREATE PUBLICATION dbz_publication FOR TABLE outbox")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        for first in range(1, events + 1, ROWS_PER_TRANSACTION):
            last = min(events, first + ROWS_PER_TRANSACTION - 1)
            connection.execute(FILL, (QUEUE_KEYS, "x" * (payload_bytes - 34), first, last))


def watch(
    process: subprocess.Popen, log: Path, bootstrap: str, topic: str, events: int
) -> dict[str, float]:
    """From the first messages in the topic to the last; the first are not counted."""
    began_at, first, used = 0.0, 0, 0.0
    deadline = time.monotonic() + START_SECONDS
    with_end = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    while True:
        count = messages(with_end, topic)
        if count and not began_at:
            began_at, first = time.monotonic(), count
            used = usage.cpu_seconds(process.pid)
            deadline = began_at + DRAIN_SECONDS
        if count >= events:
            break
        if process.poll() is not None or time.monotonic() > deadline:
            sys.stderr.write("\n".join(log.read_text().splitlines()[-30:]) + "\n")
            raise SystemExit(f"Debezium delivered {count} of {events} events; its log is above")
        time.sleep(0.02)
    result = {
        "events": events - first,
        "seconds": time.monotonic() - began_at,
        "cpu_seconds": usage.cpu_seconds(process.pid) - used,
        "peak_memory_bytes": peak_memory_bytes(process.pid),
    }
    with_end.close()
    return result


def messages(consumer: Consumer, topic: str) -> int:
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ends = (
        consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10)
        for each in partitions
    )
    return sum(high for _low, high in ends)


def command(directory: Path) -> list[str]:
    heap = ["-Xms1g", "-Xmx2g", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    files = [str(directory / "worker.properties"), str(directory / "connector.properties")]
    return ["java", *heap, "-cp", f"{JARS}/*", main, *files]


def write_settings(directory: Path, database: str, bootstrap: str, topic: str) -> None:
    parts = urlsplit(database)
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "offset.storage.file.filename": directory / "offsets",
        "listeners": "http://127.0.0.1:0",
        # A producer of its own for throughput: larger batches, sent a little later.
        "producer.acks": "all",
        "producer.linger.ms": 5,
        "producer.batch.size": 1_000_000,
        "producer.buffer.memory": 256 * 1024 * 1024,
    }
    connector = {
        "name": "outbox",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": 1,
        "database.hostname": parts.hostname,
        "database.port": parts.port or 5432,
        "database.user": unquote(parts.username or "postgres"),
        "database.password": unquote(parts.password or "") or "none",
        "database.dbname": parts.path.strip("/"),
        "topic.prefix": "peer",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": "dbz_publication",
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public.outbox",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "binary.handling.mode": "bytes",
        "max.batch.size": 20_480,
        "max.queue.size": 81_920,
        "poll.interval.ms": 10,
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": topic,
        "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
    }
    for name, settings in {"worker": worker, "connector": connector}.items():
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (directory / f"{name}.properties").write_text(lines)
