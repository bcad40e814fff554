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
#: Nothing takes as many seconds but a process that hangs.
PATIENCE = 1800.0
#: Lines of a failed process's output that its error shows.
_SHOWN = 12


class RivalError(Exception):
    """An environment can't be made or is missing, or an engine failed."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Usage of a process, or a difference of two.

    Attributes:
        cpu: CPU seconds.
        seconds: by the clock.
        bytes: greatest resident memory; of a difference that of the first.
    """

    cpu: float
    seconds: float
    bytes: int

    @classmethod
    def read(cls, text: str) -> Spent:
        """The three figures of ``text``, with spaces between them."""
        cpu, seconds, peak = text.split()
        return cls(float(cpu), float(seconds), int(peak))

    def since(self, other: Spent) -> Spent:
        """Usage beyond ``other``.

        Raises:
            RivalError: it is not more; so other work on the machine exceeds the difference.
        """
        found = Spent(self.cpu - other.cpu, self.seconds - other.seconds, self.bytes)
        if min(found.cpu, found.seconds) <= 0:
            raise RivalError("more input took less time: repeat this on an idle machine")
        return found


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one engine.

    Attributes:
        name: of its folder here and below ``home``.
        package: its Python package whose version counts.
        home: folder of all environments.
    """

    name: str
    package: str = ""
    home: Path = ROOT / ".rivals"

    @classmethod
    def names(cls) -> list[str]:
        """All engines that have an environment."""
        return sorted(one.parent.name for one in _SOURCES.glob("*/requirements.txt"))

    @property
    def folder(self) -> Path:
        """The environment's own folder."""
        return self.home / self.name

    @property
    def packages(self) -> Path:
        """Its installed Python packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    @property
    def jars(self) -> Path:
        """Jars of ``pom.xml``."""
        return self.folder / "jars"

    @property
    def classes(self) -> Path:
        """Compiled classes of ``java/``, and its other files."""
        return self.folder / "classes"

    @property
    def version(self) -> str:
        """Version of its package; ``unknown`` without one."""
        found = distributions(name=self.package or self.name, path=[str(self.packages)])
        return next((one.version for one in found), "unknown")

    def require(self) -> None:
        """Check that the environment has been made from the present files.

        Raises:
            RivalError: it has not.
        """
        stamp = self._stamp
        if not stamp.is_file() or stamp.read_text(encoding="ascii") != self._digest():
            command = f"python -m benchmarks.rivals install {self.name}"
            raise RivalError(f"{self.folder} is missing or out of date: run '{command}'")

    def install(self, classpath: str = "") -> None:
        """Make the environment, unless it has been made from the same files.

        Args:
            classpath: of ``java/``, besides :attr:`jars`; ``{packages}`` is :attr:`packages`.

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
        """Digest of all files from which the environment is made."""
        source, found = _SOURCES / self.name, hashlib.sha256()
        chosen = [*source.glob("requirements.txt"), *source.glob("pom.xml")]
        chosen += [path for path in source.glob("java/**/*") if path.is_file()]
        for path in sorted(chosen):
            found.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
        return found.hexdigest()


def file_parts(
    streams: Mapping[str, pa.Table], folder: Path, *, files: int, used: int
) -> Iterator[tuple[Path, pa.Table]]:
    """Yield the first parts of equal length of each stream, with their paths without a suffix.

    Args:
        streams: stream -> its rows.
        folder: gets a folder for each stream.
        files: number of parts of all rows of a stream.
        used: number of these that are yielded; parts without rows are left out.
    """
    for name, rows in streams.items():
        (folder / name).mkdir(parents=True)
        length = -(-rows.num_rows // files)
        for number in range(used):
            part = rows.slice(number * length, length)
            if part.num_rows:
                yield folder / name / str(number), part


def java_program(name: str) -> str:
    """``java`` or ``javac`` of ``JAVA_HOME``, else of the path."""
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
    """Standard output of a command in ``folder``.

    Raises:
        RivalError: it failed, or has not ended after :data:`PATIENCE`; the text has its errors.
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
    """The lines with causes, or the last ones."""
    found = list(lines)
    causes = [line for line in found if line.startswith(("Caused by", "Exception", "ERROR"))]
    return "\n".join(causes[:_SHOWN] or found[-_SHOWN:])
