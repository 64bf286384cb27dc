"""Apache Kafka in KRaft mode, one node, from the jars that pom.xml names."""

from __future__ import annotations

import hashlib
import shutil
import signal
import tempfile
from pathlib import Path

from servers import Server
from servers.instance import Instance
from servers.machine import CACHE, Failed, Unavailable, apt_install, run, say

POM = Path(__file__).with_name("pom.xml")
JARS = CACHE / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
BENCH = "bench"
CLUSTER_ID = "Y29tbWl0cmVsYXktdGVzdA"


class Kafka(Server):
    ports = ("port", "controller_port")
    unprivileged = False
    stop_signal = signal.SIGTERM

    def install(self) -> None:
        missing = {"java": "default-jre-headless"} if not shutil.which("java") else {}
        if not JARS.exists() and not shutil.which("mvn"):
            missing["mvn"] = "maven"
        if missing:
            apt_install(*missing.values())
        if not JARS.exists():
            fetch_jars()

    def create(self, instance: Instance) -> None:
        self.prepare(instance)
        format_ = ["format", "--cluster-id", CLUSTER_ID, "--config", str(settings_file(instance))]
        run([*java(), "kafka.tools.StorageTool", *format_])

    def prepare(self, instance: Instance) -> None:
        write_settings(instance)

    def command(self, instance: Instance) -> list[str]:
        flags = java(is_measured=instance.variant == BENCH)
        return [*flags, "kafka.Kafka", str(settings_file(instance))]

    def is_ready(self, instance: Instance) -> bool:
        # The port opens before the broker may serve; the log says when it does.
        return "Kafka Server started" in instance.log.read_text(errors="replace")

    def url(self, instance: Instance) -> str:
        return f"kafka://127.0.0.1:{instance.port}"


def fetch_jars() -> None:
    say("fetching Apache Kafka from Maven Central, once")
    JARS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS.parent) as scratch:
        jars = Path(scratch) / "jars"
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            run(["mvn", "-B", "-q", "-f", POM, *copy, f"-DoutputDirectory={jars}"])
        except Failed as error:
            raise Unavailable(str(error)) from error
        jars.rename(JARS)


def java(*, is_measured: bool = False) -> list[str]:
    """Quick to start and small; the one that is measured runs as in production."""
    small = ["-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    flags = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"] if is_measured else [*small, "-Xshare:auto"]
    return ["java", *flags, "-cp", f"{JARS}/*"]


def settings_file(instance: Instance) -> Path:
    return instance.home / "server.properties"


def write_settings(instance: Instance) -> None:
    broker = f"127.0.0.1:{instance.port}"
    controller = f"127.0.0.1:{instance.ports['controller_port']}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "log.dirs": instance.data,
        "auto.create.topics.enable": "false",
        # One node is all there is to agree with.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Few partitions and small buffers: a first transaction or group takes no seconds.
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 1,
        "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
        # After a kill the broker waits until its former self counts as gone: 9 s by default.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
    }
    lines = (f"{name}={value}\n" for name, value in settings.items())
    settings_file(instance).write_text("".join(lines))
