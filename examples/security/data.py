"""Generated data of the example security: logons, processes, downloads, scans, connections."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.events import MINUTE, SECOND, moments, stream

_FILES = np.array([f"setup{number}.exe" for number in range(12)] + ["notes.pdf", "plan.docx"])
_COMMANDS = np.array(["cmd /c dir", "powershell -File a.ps1", "powershell -EncodedCommand QQBC"])


def tables(seed: int) -> dict[str, pa.Table]:
    """Return stream → its rows in the order of arrival."""
    rng = np.random.default_rng(seed)
    hosts = np.array([f"host{number:02d}" for number in range(30)])
    accounts = np.array([f"user{number:02d}" for number in range(45)])
    downloads, host = moments(rng, 400), hosts[rng.integers(0, 30, 400)]
    file = _FILES[rng.integers(0, len(_FILES), 400)]
    scanned = np.flatnonzero(rng.random(400) < 0.8)
    begun = np.flatnonzero(rng.random(400) < 0.25)
    calling = np.sort(rng.choice(begun, len(begun) // 2, replace=False))
    started = downloads + rng.integers(10, 900, 400) * SECOND
    others = 600
    process_host = np.concatenate([host[begun], hosts[rng.integers(0, 30, others)]])
    process_file = np.concatenate([file[begun], _FILES[rng.integers(0, len(_FILES), others)]])
    processes = np.concatenate([started[begun], moments(rng, others)])
    count = len(processes)
    logons = moments(rng, 300)
    # Twelve series of guessed passwords: failures every few seconds, then a success.
    victims, guesses = rng.integers(0, 45, 12), rng.integers(3, 9, 12)
    tried = [
        m + n * 7 * SECOND for m, g in zip(logons[:12], guesses, strict=True) for n in range(g)
    ]
    account = np.concatenate([rng.integers(0, 45, 300), np.repeat(victims, guesses)])
    account[:12] = victims
    at = np.concatenate([logons, tried])
    at[:12] += 2 * MINUTE
    success = np.concatenate([np.ones(12, bool), rng.random(288) < 0.9, np.zeros(len(tried), bool)])
    inside = rng.random(len(at)) < 0.9
    last = rng.integers(1, 255, len(at))
    address = [
        f"10.0.0.{n}" if own else f"203.0.113.{n}" for n, own in zip(last, inside, strict=True)
    ]
    return {
        "logons": stream(
            rng,
            {"host": hosts[account % 30], "account": accounts[account], "address": address,
             "success": success},
            at,
            {"host": "", "account": "", "address": "10.0.0.0", "success": False},
        ),
        "processes": stream(
            rng,
            {"host": process_host, "account": accounts[rng.integers(0, 45, count)],
             "file": process_file, "command": _COMMANDS[rng.integers(0, 3, count)]},
            processes,
            {"host": "", "account": "-", "file": "", "command": ""},
        ),
        "downloads": stream(
            rng,
            {"host": host, "file": file},
            downloads,
            {"host": "-", "file": "-"},
        ),
        "scans": stream(
            rng,
            {"host": host[scanned], "file": file[scanned]},
            downloads[scanned] + rng.integers(5, 600, len(scanned)) * SECOND,
            {"host": "", "file": ""},
        ),
        "connections": stream(
            rng,
            {"host": host[calling], "file": file[calling],
             "port": rng.choice([80, 443, 4444], len(calling))},
            started[calling] + rng.integers(1, 400, len(calling)) * SECOND,
            {"host": "", "file": "-", "port": 0},
        ),
    }  # fmt: skip
