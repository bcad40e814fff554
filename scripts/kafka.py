"""A Kafka broker of one node on this machine, for tests and for trying Kafka out: ``make kafka``.

It needs Java 17 or newer, 256 MB of memory, and Maven (``mvn``), which downloads 40 MB of libraries
into ``.kafka/`` once, from the repositories in Maven's settings. ``KAFKA_LIBRARIES`` may name a
directory with these libraries instead, such as ``libs`` of a Kafka distribution.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from anabranch_client.processes.children import free_port

VERSION = "4.4.0"
ROOT = Path(__file__).resolve().parent.parent
HEAP = "256m"
#: Maximum seconds of a broker's start.
PATIENCE = 180.0
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>anabranch</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
#: Settings of a single node that starts quickly, uses little memory, and takes large messages.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "message.max.bytes": "20971520",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


class NoKafka(Exception):
    """The broker's libraries are not available; the message says what to install."""


def libraries() -> Path:
    """Return the directory of the broker's libraries; they are downloaded if it does not exist.

    Raises:
        NoKafka: Java or Maven is missing, or Maven fails.
    """
    if shutil.which("java") is None:
        raise NoKafka("a Kafka broker needs Java 17 or newer: install it")
    given = os.environ.get("KAFKA_LIBRARIES")
    if given:
        return Path(given)
    found = ROOT / ".kafka" / VERSION
    if found.is_dir():
        return found
    if shutil.which("mvn") is None:
        raise NoKafka("a Kafka broker needs Maven (mvn), which fetches its libraries: install it")
    partial = found.with_name(f"{VERSION}.{os.getpid()}")
    partial.mkdir(parents=True)
    (partial / "pom.xml").write_text(_POM)
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={partial}")
    run = subprocess.run(
        ["mvn", "-q", "-B", *goal], cwd=partial, capture_output=True, text=True, check=False
    )
    if run.returncode:
        shutil.rmtree(partial)
        raise NoKafka(f"Maven can't fetch Kafka {VERSION}: {run.stdout[-500:]}")
    with suppress(OSError):  # another process was faster
        partial.rename(found)
    shutil.rmtree(partial, ignore_errors=True)
    return found


class Broker:
    """A Kafka broker that can be killed, and started again with its data.

    Args:
        home: directory for its data and its log.
        port: port for clients; the controller gets another free port.
        login: user -> password; empty: without a login. Its mechanism is SASL/PLAIN, of encrypted
            connections SCRAM-SHA-512.
        certificate: PEM file of the broker's certificate, with its private key (``.key``) and its
            authority's certificate (``ca.pem``) in the same folder: connections are encrypted.
            Without a login, clients need a certificate of this authority.
    """

    def __init__(
        self,
        home: Path,
        port: int,
        login: Mapping[str, str] | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.home, self.port = home, port
        self.address = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        protocol = ("SASL_" if login else "") + ("PLAINTEXT" if certificate is None else "SSL")
        between = "CLIENTS" if certificate is None else "BROKERS"
        controller = free_port()
        settings = {
            **_SETTINGS,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"CLIENTS://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENTS://{self.address}",
            "inter.broker.listener.name": between,
            "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:PLAINTEXT",
            "log.dirs": str(home / "data"),
        }
        home.mkdir(parents=True, exist_ok=True)
        users = tuple[str, ...]()
        if certificate is not None:
            # A broker's connections to itself have neither login nor encryption.
            own = f",BROKERS://127.0.0.1:{free_port()}"
            settings["listeners"] += own
            settings["advertised.listeners"] += own
            settings["listener.security.protocol.map"] += ",BROKERS:PLAINTEXT"
            (home / "broker.pem").write_text(
                certificate.with_suffix(".key").read_text() + certificate.read_text()
            )
            prefix = "listener.name.clients.ssl."
            settings |= {
                f"{prefix}keystore.type": "PEM",
                f"{prefix}keystore.location": str(home / "broker.pem"),
                f"{prefix}truststore.type": "PEM",
                f"{prefix}truststore.location": str(certificate.with_name("ca.pem")),
                f"{prefix}client.auth": "none" if login else "required",
            }
        if login and certificate is not None:
            settings |= {
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
            }
            for name, password in login.items():
                users += ("-S", f"SCRAM-SHA-512=[name={name},password={password}]")
        elif login:
            known = "".join(f' user_{name}="{password}"' for name, password in login.items())
            name, password = next(iter(login.items()))
            settings |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.clients.plain.sasl.jaas.config": (
                    "org.apache.kafka.common.security.plain.PlainLoginModule required"
                    f' username="{name}" password="{password}"{known};'
                ),
            }
        self._file = home / "server.properties"
        self._file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        if not (home / "data").exists():
            cluster = ("format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(self._file), *users)
            made = self._java("128m", "kafka.tools.StorageTool", *cluster)
            if made.wait():
                raise NoKafka(f"the broker's storage can't be made: {self.log()[-500:]}")

    def _java(self, heap: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = (f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", *options, quiet, "-cp", f"{libraries()}/*", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        """Output of the broker."""
        return (self.home / "log").read_text()

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections.

        Raises:
            NoKafka: the broker ended, or another program has its port.
        """
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            raise NoKafka(f"port {self.port} is in use: end its program, or give --port")
        self._process = self._java(HEAP, "kafka.Kafka", str(self._file))
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            time.sleep(0.05)
        self.kill()
        raise NoKafka(f"the broker did not start: {self.log()[-1000:]}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the broker's process if it is running."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the broker, as in a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop the broker in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self.kill()


@contextmanager
def running(
    home: Path,
    port: int = 0,
    login: Mapping[str, str] | None = None,
    certificate: Path | None = None,
) -> Iterator[Broker]:
    """Context with a running broker; port 0: any free port; ``login``, ``certificate``: as for
    :class:`Broker`.

    Raises:
        NoKafka: no broker can be run.
    """
    broker = Broker(home, port or free_port(), login, certificate)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def main() -> None:
    """Run a broker in the foreground until it is interrupted."""
    parser = argparse.ArgumentParser(description="A Kafka broker of one node.")
    parser.add_argument("--port", type=int, default=9092, help="port of clients (9092)")
    parser.add_argument("--home", type=Path, help="keep its data here (default: forget them)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        try:
            with running(given.home or Path(folder), given.port) as broker:
                sys.stdout.write(f"Kafka {VERSION} at {broker.address}; Ctrl-C ends it\n")
                sys.stdout.flush()
                signal.pause()
        except NoKafka as cause:
            sys.exit(str(cause))


if __name__ == "__main__":
    main()
