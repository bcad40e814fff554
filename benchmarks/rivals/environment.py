"""Environments of other engines, with pinned versions, in the git-ignored folder ``.rivals``.

``python -m benchmarks.rivals install NAME`` makes ``.rivals/NAME`` from the folder
``benchmarks/rivals/NAME``: a virtual environment with its ``requirements.txt`` and, if there are
such files, the jars of its ``pom.xml`` (by Maven) and the classes of ``java/`` (by ``javac``).
An environment that has been made from the same files is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import pyarrow as pa

from benchmarks.report.figures import ROOT, tell

_SOURCES = Path(__file__).resolve().parent
#: Time limit in seconds; only a hanging process reaches it.
PATIENCE = 1800.0
#: Maximum number of lines of a failed process's output in the error.
_SHOWN = 12


class RivalError(Exception):
    """An engine's environment can't be made or is missing, or the engine failed."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Resource usage of a process, or the difference between two usages.

    Attributes:
        cpu: CPU seconds.
        seconds: wall-clock seconds.
        bytes: greatest resident memory; in a difference, that of the first usage.
    """

    cpu: float
    seconds: float
    bytes: int

    @classmethod
    def read(cls, text: str) -> Spent:
        """Parse the three figures in ``text``, separated by spaces."""
        cpu, seconds, peak = text.split()
        return cls(float(cpu), float(seconds), int(peak))

    def since(self, other: Spent) -> Spent:
        """Return the usage minus ``other``.

        Raises:
            RivalError: the difference is not positive, so it is less than the noise of the machine.
        """
        found = Spent(self.cpu - other.cpu, self.seconds - other.seconds, self.bytes)
        if min(found.cpu, found.seconds) <= 0:
            raise RivalError("more input took less time: repeat this on an idle machine")
        return found


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one engine.

    Attributes:
        name: name of the engine, and of its folders here and below ``home``.
        package: the Python package whose version is the engine's.
        home: folder of all environments.
    """

    name: str
    package: str = ""
    home: Path = ROOT / ".rivals"

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all engines that have an environment."""
        return sorted(one.parent.name for one in _SOURCES.glob("*/requirements.txt"))

    @property
    def folder(self) -> Path:
        """Folder of the environment."""
        return self.home / self.name

    @property
    def packages(self) -> Path:
        """Folder of the environment's installed Python packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    @property
    def jars(self) -> Path:
        """Folder of the jars of ``pom.xml``."""
        return self.folder / "jars"

    @property
    def classes(self) -> Path:
        """Folder of the compiled classes of ``java/``, and of its other files."""
        return self.folder / "classes"

    @property
    def version(self) -> str:
        """Version of the engine's package; ``unknown`` if it is not installed."""
        found = distributions(name=self.package or self.name, path=[str(self.packages)])
        return next((one.version for one in found), "unknown")

    def require(self) -> None:
        """Check that the environment was installed from the present files.

        Raises:
            RivalError: it has not.
        """
        stamp = self._stamp
        if not stamp.is_file() or stamp.read_text(encoding="ascii") != self._digest():
            command = f"python -m benchmarks.rivals install {self.name}"
            raise RivalError(f"{self.folder} is missing or out of date: run '{command}'")

    def install(self, classpath: str = "") -> None:
        """Install the environment, unless it was installed from the same files.

        Args:
            classpath: class path for ``java/``, besides :attr:`jars`; ``{packages}`` is
                :attr:`packages`.

        Raises:
            RivalError: a command failed; the text has its output.
        """
        try:
            self.require()
        except RivalError:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            return
        source = _SOURCES / self.name
        tell(f"Making {self.folder}")
        _run(sys.executable, "-m", "venv", str(self.folder))
        pip = (str(self.folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-input")
        _run(*pip, "-r", str(source / "requirements.txt"))
        if (source / "pom.xml").is_file():
            copy = ("dependency:copy-dependencies", f"-DoutputDirectory={self.jars}")
            _run("mvn", "-q", "-B", "-f", str(source / "pom.xml"), *copy)
        if (source / "java").is_dir():
            shutil.copytree(source / "java", self.classes, ignore=shutil.ignore_patterns("*.java"))
            sources = sorted(map(str, (source / "java").glob("*.java")))
            path = os.pathsep.join((classpath.format(packages=self.packages), f"{self.jars}/*"))
            _run(java_program("javac"), "-nowarn", "-cp", path, "-d", str(self.classes), *sources)
        self._stamp.write_text(self._digest(), encoding="ascii")

    @property
    def _stamp(self) -> Path:
        return self.folder / ".installed"

    def _digest(self) -> str:
        """Return the digest of all files from which the environment is installed."""
        source, found = _SOURCES / self.name, hashlib.sha256()
        chosen = [*source.glob("requirements.txt"), *source.glob("pom.xml")]
        chosen += [path for path in source.glob("java/**/*") if path.is_file()]
        for path in sorted(chosen):
            found.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
        return found.hexdigest()


def file_parts(
    streams: Mapping[str, pa.Table], folder: Path, *, files: int, used: int
) -> Iterator[tuple[Path, pa.Table]]:
    """Cut each stream into parts of equal length; yield the first parts, with paths without a
    suffix.

    Args:
        streams: stream -> its rows.
        folder: parent of a folder for each stream.
        files: number of parts of all rows of a stream.
        used: number of parts that are yielded; parts without rows are left out.
    """
    for name, rows in streams.items():
        (folder / name).mkdir(parents=True)
        length = -(-rows.num_rows // files)
        for number in range(used):
            part = rows.slice(number * length, length)
            if part.num_rows:
                yield folder / name / str(number), part


def java_program(name: str) -> str:
    """Return the path of ``java`` or ``javac``, from ``JAVA_HOME`` or else from ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise RivalError(f"{command[0]} can't be run ({error}): install it") from error
    if done.returncode:
        raise RivalError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def output(command: Sequence[str], folder: Path) -> str:
    """Run a command in ``folder``; return its standard output.

    Raises:
        RivalError: the command failed or took longer than :data:`PATIENCE`; the text has its
            errors.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise RivalError(f"{command[0]} has not ended after {PATIENCE:.0f} s") from error
    if done.returncode:
        raise RivalError(f"{command[0]} failed:\n{_last(done.stderr.splitlines())}")
    return done.stdout


def _last(lines: Iterable[str]) -> str:
    """Return the lines of an error output that name causes, or else the last lines."""
    found = list(lines)
    causes = [line for line in found if line.startswith(("Caused by", "Exception", "ERROR"))]
    return "\n".join(causes[:_SHOWN] or found[-_SHOWN:])
