"""Certificates for tests of encrypted connections, made by ``openssl``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def authority(folder: Path, name: str = "ca") -> Path:
    """Create an authority, and return its certificate; skip the test if there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder.mkdir(parents=True, exist_ok=True)
    _request(folder, name, "-subj", f"/CN={name}")
    return folder / f"{name}.pem"


def certificate(signed_by: Path, name: str) -> Path:
    """Return a new certificate for 127.0.0.1; the file with the additional suffix ``.key`` is its
    private key.
    """
    key = signed_by.with_suffix(".key")
    own = ("-CA", str(signed_by), "-CAkey", str(key), "-subj", f"/CN={name}")
    _request(signed_by.parent, name, *own, "-addext", "subjectAltName=IP:127.0.0.1")
    return signed_by.parent / f"{name}.pem"


def _request(folder: Path, name: str, *more: str) -> None:
    files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
    run = ("openssl", "req", "-x509", *_KEY, *files, *more)
    subprocess.run(run, check=True, capture_output=True)
