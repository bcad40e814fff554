"""Check a release: ``python scripts/release_check.py [--tag v1.2.3]``.

The version in pyproject.toml must equal that of the tag, of CITATION.cff and of a dated section of
CHANGELOG.md; the section *Unreleased* above it must be empty. The wheel is built and installed into
a separate environment (with the dependencies of this one), and must print this version.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import site
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_SECTION: Final = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)


def main() -> int:
    """Print each problem; returns 1 if there is one."""
    parser = argparse.ArgumentParser(description="Check a release.")
    parser.add_argument(
        "--tag", help="tag of the release; left out: the tag of HEAD, if it has one"
    )
    parser.add_argument("--no-wheel", action="store_true", help="only compare versions")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the wheel there")
    options = parser.parse_args()
    found = disagreements(ROOT, options.tag or _tag_of_head())
    if not found and not options.no_wheel:
        with tempfile.TemporaryDirectory() as folder:
            found = wheel_problems(ROOT, Path(folder))
            if options.keep and not found:
                options.keep.mkdir(parents=True, exist_ok=True)
                for wheel in Path(folder).glob("*.whl"):
                    shutil.copy(wheel, options.keep)
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    return 1 if found else 0


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    return str(_project(root)["version"])


def _project(root: Path) -> dict[str, Any]:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["project"])


def disagreements(root: Path, tag: str = "") -> list[str]:
    """Return the files with another version than pyproject.toml, or without a section for it."""
    version = project_version(root)
    found = []
    if tag and tag != f"v{version}":
        found.append(f"the tag is {tag}, pyproject.toml has {version}: tag v{version}")
    if tag and "Source" not in _project(root).get("urls", {}):
        found.append("pyproject.toml: [project.urls] has no Source: write the repository's address")
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    if cited is None or cited[1] != version:
        found.append(f"CITATION.cff: write version: {version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = list(_SECTION.finditer(changelog))
    dated = [section[1] for section in sections if section[2]]
    if dated[:1] != [version]:
        found.append(f"CHANGELOG.md: the newest dated section is not ## [{version}] - YYYY-MM-DD")
    for section, following in itertools.pairwise(sections):
        if tag and section[1] == "Unreleased":
            entries = re.findall(r"^- ", changelog[section.end() : following.start()], re.MULTILINE)
            if entries:
                found.append(f"CHANGELOG.md: {len(entries)} entries are unreleased: move them")
    return found


def wheel_problems(root: Path, folder: Path) -> list[str]:
    """Build, install and run the wheel in ``folder``; return the problems."""
    version = project_version(root)
    pip = [sys.executable, "-m", "pip", "-q", "--no-input"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), str(root)], check=True)
    wheels = list(folder.glob("*.whl"))
    if [wheel.name for wheel in wheels] != [f"anabranch-{version}-py3-none-any.whl"]:
        return [f"the build made {[wheel.name for wheel in wheels]}"]
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheels[0]).namelist()}
    foreign = {top for top in tops if not top.startswith(("anabranch_", "anabranch-"))}
    if foreign:
        return [f"the wheel has {', '.join(sorted(foreign))}"]
    home = folder / "installed"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    target = ["--python", str(home / "bin" / "python")]
    subprocess.run([*pip, *target, "install", "--no-deps", str(wheels[0])], check=True)
    # Paths in a .pth file come after the environment's own, and .pth files in them are not read, so
    # that the editable installation is not used.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    command = [str(home / "bin" / "anabranch"), "--version"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if printed.stdout.splitlines()[:1] != [f"anabranch {version}"]:
        return [f"anabranch --version printed {printed.stdout!r} {printed.stderr!r}"]
    where = "import anabranch_client, sys; sys.stdout.write(anabranch_client.__file__)"
    python = [str(home / "bin" / "python"), "-c", where]
    place = subprocess.run(python, cwd=folder, capture_output=True, text=True, check=True).stdout
    return [] if Path(place).is_relative_to(home.resolve()) else [f"the wheel was not run: {place}"]


def _tag_of_head() -> str:
    command = ["git", "describe", "--tags", "--exact-match"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
