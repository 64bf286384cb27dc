"""RabbitMQ from apt: a node, an epmd and a certificate of its own for each instance."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import signal
import socket
from contextlib import closing, suppress
from pathlib import Path

from servers import Server
from servers.instance import Instance
from servers.machine import Unavailable, apt_install, primary_group, run

SCRIPTS = Path("/usr/lib/rabbitmq/bin")  # the wrappers in /usr/sbin insist on the system's node
PREAMBLE = b"AMQP\x00\x00\x09\x01"

NODE = """\
epmd & epmd=$!
{server} & server=$!
trap 'kill -TERM $server' TERM INT
wait $server
wait $server
kill $epmd
"""
"""Both are children of one shell: whoever stops, kills or freezes it, gets both."""


class RabbitMQ(Server):
    ports = ("port", "tls_port", "epmd_port", "distribution_port", "stream_port")
    unprivileged = True
    stop_signal = signal.SIGTERM

    def install(self) -> None:
        if not (SCRIPTS / "rabbitmq-server").exists():
            apt_install("rabbitmq-server")
        if not shutil.which("openssl"):
            apt_install("openssl")
        if not shutil.which("epmd"):
            raise Unavailable("RabbitMQ is here, but Erlang's `epmd` is not: install erlang-base")

    def create(self, instance: Instance) -> None:
        make_certificates(instance)

    def prepare(self, instance: Instance) -> None:
        write_settings(instance)
        write_control(instance)

    def command(self, instance: Instance) -> list[str]:
        server = shlex.quote(str(SCRIPTS / "rabbitmq-server"))
        # "Under systemd" the script becomes the broker instead of standing before it.
        settings = {**environment(instance), "RUNNING_UNDER_SYSTEMD": "true"}
        variables = [f"{name}={value}" for name, value in settings.items()]
        return ["env", *variables, "sh", "-c", NODE.format(server=server)]

    def is_ready(self, instance: Instance) -> bool:
        with suppress(OSError), closing(socket.socket()) as probe:
            probe.settimeout(2)
            probe.connect(("127.0.0.1", instance.port))
            probe.sendall(PREAMBLE)
            return probe.recv(1) == b"\x01" and "Server startup complete" in log_of(instance)
        return False

    def url(self, instance: Instance) -> str:
        return f"amqp://guest:guest@127.0.0.1:{instance.port}/"


def log_of(instance: Instance) -> str:
    return instance.log.read_text(errors="replace")


def environment(instance: Instance) -> dict[str, str]:
    data = instance.data
    # Node names are known to the whole machine only through epmd, and that is our own.
    name = hashlib.sha256(str(instance.directory).encode()).hexdigest()[:12]
    return {
        "HOME": str(data),
        "RABBITMQ_NODENAME": f"test-{name}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(instance.port),
        "RABBITMQ_DIST_PORT": str(instance.ports["distribution_port"]),
        "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
        "RABBITMQ_LOG_BASE": str(data / "logs"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(instance.home / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(instance.home / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_GENERATED_CONFIG_DIR": str(data / "config"),
        "ERL_EPMD_PORT": str(instance.ports["epmd_port"]),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def write_settings(instance: Instance) -> None:
    tls = instance.data / "tls"
    settings = {
        "listeners.tcp.local": f"127.0.0.1:{instance.port}",
        "listeners.ssl.local": f"127.0.0.1:{instance.ports['tls_port']}",
        "stream.listeners.tcp.local": f"127.0.0.1:{instance.ports['stream_port']}",
        "ssl_options.cacertfile": tls / "ca.pem",
        "ssl_options.certfile": tls / "server.pem",
        "ssl_options.keyfile": tls / "server.key",
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "false",
        "max_message_size": 1024 * 1024,
        "vm_memory_high_watermark.relative": 0.6,
        "disk_free_limit.absolute": "50MB",
        "log.console": "true",
        "log.console.level": "info",
    }
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (instance.home / "rabbitmq.conf").write_text(lines)
    (instance.home / "enabled_plugins").write_text("[rabbitmq_stream].\n")


def write_control(instance: Instance) -> None:
    """`rabbitmqctl` for this very node: tests raise alarms with it."""
    variables = " ".join(shlex.quote(f"{k}={v}") for k, v in environment(instance).items())
    become = ""
    if instance.user is not None:
        group = primary_group(instance.user)
        become = f"setpriv --reuid={instance.user} --regid={group} --clear-groups "
    script = instance.home / "rabbitmqctl"
    script.write_text(f'#!/bin/sh\nexec {become}env {variables} {SCRIPTS}/rabbitmqctl "$@"\n')
    script.chmod(0o755)


def make_certificates(instance: Instance) -> None:
    """An authority of its own and a certificate for `localhost`, and for no address."""
    tls = instance.data / "tls"
    openssl = "openssl"
    fresh = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    user = instance.user
    run(["mkdir", "-p", tls], user=user)
    authority = [*fresh, "-x509", "-days", "3650", "-subj", "/CN=commitrelay test CA"]
    run([openssl, *authority, "-keyout", tls / "ca.key", "-out", tls / "ca.pem"], user=user)
    server = [*fresh, "-x509", "-days", "3650", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"]
    signed = ["-CA", str(tls / "ca.pem"), "-CAkey", str(tls / "ca.key")]
    files = ["-keyout", str(tls / "server.key"), "-out", str(tls / "server.pem")]
    run([openssl, *server, *names, *signed, *files], user=user)
