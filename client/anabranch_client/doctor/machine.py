"""Checks of the machine: a free port, and a folder on a disk."""

from __future__ import annotations

import errno
import shutil
import socket
import tempfile
from pathlib import Path

import psutil

from anabranch_client.doctor.findings import Finding, Verdict
from anabranch_client.doctor.holder import described
from anabranch_client.render.tables import size

#: Free bytes of the disk below which the check fails, and below which it warns.
_TOO_LITTLE, _LITTLE = 256 * 2**20, 2 * 2**30


def check_port(host: str, port: int, own: str = "") -> Finding:
    """Check that a port is free, or used by the folder's own service at the address ``own``."""
    check = f"port {port}" if port else "port"
    if port == 0:
        return Finding(check, Verdict.OK, "any free one", facts={"port": 0})
    facts = {"port": port, "host": host}
    if own.endswith(f":{port}"):
        return Finding(check, Verdict.OK, "used by the pipeline of this folder", facts=facts)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As in the service, so that a port that was just released counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as cause:
        if cause.errno != errno.EADDRINUSE:
            said = f"{host}:{port} can't be listened on: {cause.strerror or cause}"
            return Finding(check, Verdict.FAIL, said, "give another --host or --port", facts)
        listener = _listener(port)
        by = "another process" if listener is None else described(listener)
        facts |= {"pid": None if listener is None else listener.pid}
        remedy = "stop that, or give another port (--port 0: any)"
        return Finding(check, Verdict.FAIL, f"used by {by}", remedy, facts)
    return Finding(check, Verdict.OK, f"free on {host}", facts=facts)


def _listener(port: int) -> psutil.Process | None:
    """The process that listens on a port, if this user may see it."""
    try:
        for one in psutil.net_connections("tcp"):
            listens = one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port
            if listens and one.pid:
                return psutil.Process(one.pid)
    except psutil.Error:
        pass
    return None


def check_folder(folder: Path) -> Finding:
    """Check that a pipeline's folder (or its nearest existing parent) is writable and has space."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"x")
        free = shutil.disk_usage(there).free
    except OSError as cause:
        said = f"{there} can't be written: {cause.strerror or cause}"
        remedy = "name a writable folder by --dir, or make room"
        return Finding("folder", Verdict.FAIL, said, remedy, {"path": str(folder)})
    facts = {"path": str(folder), "exists": there == folder, "free_bytes": free}
    said = f"{folder} {'can be written' if there == folder else 'can be made'}, {size(free)} free"
    if free >= _LITTLE:
        return Finding("folder", Verdict.OK, said, facts=facts)
    verdict = Verdict.FAIL if free < _TOO_LITTLE else Verdict.WARN
    return Finding("folder", verdict, said, "make room, or name a folder on another disk", facts)
