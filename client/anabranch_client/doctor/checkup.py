"""All checks of ``anabranch doctor``, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anabranch_client.doctor.findings import Finding
from anabranch_client.doctor.holder import check_holder
from anabranch_client.doctor.java import check_java
from anabranch_client.doctor.machine import check_folder, check_port
from anabranch_client.doctor.packages import check_packages, check_python
from anabranch_client.doctor.requirements import installed


def check_up(folder: Path, host: str, port: int, redis_url: str | None) -> Iterator[Finding]:
    """Check the requirements of `anabranch up` in ``folder``, on ``host`` and ``port``.

    If packages are missing, which :func:`check_packages` reports, Redis is not checked.
    """
    yield check_python()
    yield check_packages()
    yield check_java(needed=installed("pyspark")["pyspark"] is not None)
    yield check_folder(folder)
    held = check_holder(folder)
    yield held
    yield check_port(host, port, str(held.facts.get("url") or ""))
    if installed("redis")["redis"] is not None:
        from anabranch_client.doctor.redis_server import check_redis

        yield check_redis(redis_url)
