"""Search for phrases in docstrings, comments and pages that are hard to read.

These are clauses in place of a noun of the field ("By what a batch goes" for "Journal entry of a
batch") and words with several meanings. Each pattern finds suspects; a sentence with a correct use
of the phrase is rewritten as well, so that the count can reach zero.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from typing import Final

from tests.support.structure.code import ROOT

#: Areas whose texts are searched, each a top-level folder or a file.
AREAS: Final = (
    "contract", "planner", "runtime", "service", "client", "deploy", "benchmarks", "tests", "docs",
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md",
)  # fmt: skip
#: Files whose sentences are data, history, or made from texts that are searched themselves.
SKIPPED: Final = (
    "tests/support/structure/", "tests/test_structure.py", "docs/benchmarks/",
    "docs/cli.md", "docs/errors.md", "docs/rest.md", "docs/settings.md",
)  # fmt: skip
#: A relative clause as the head of a text.
HEAD: Final = re.compile(
    r"^(?:What(?:ever)?(?! if)|Who(?:ever|m)?|Those|That which"
    r"|(?:By|With|To|From|Of|In) (?:what|which|whom)"
    r"|Of (?:the|all|each|those) \w+ (?:that|which|those)|How far)\b"
)
#: Clauses and words within a text.
HABIT: Final = re.compile(
    r"\b(?:of which|by what|those (?:that|of)|what (?:is|was|has|had|were) |go(?:es|ing)? by\b"
    r"|told|tells? apart|asked (?:of|for|ahead)|set aside|put aside|kept aside|likewise|anew"
    r"|whoever|be it|nobody|had better|is no \w+ that)\b",
    re.IGNORECASE,
)
#: A question may begin as a relative clause does.
_QUESTION: Final = re.compile(r"[^.!:;]*\?")
#: Finite verbs, which an imperative subject does not have.
_FINITE: Final = re.compile(r"\b(?:is|are|was|were|has|have|had|goes|may|can|stays?|comes?)\b")
SUBJECT_LENGTH: Final = 72
#: Commits before this moment are history.
COMMITS_SINCE: Final = "2026-11-26T18:00:00Z"


def suspects(text: str) -> list[str]:
    """Patterns that one text (a docstring, a comment, a paragraph) shows, as they stand in it."""
    text = text.strip()
    head = None if _QUESTION.match(text) else HEAD.match(text)
    return ([head.group()] if head else []) + HABIT.findall(text)


def _python(text: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(text)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and (doc := ast.get_docstring(node)) is not None:
            yield node.body[0].lineno, doc
        elif isinstance(node, ast.keyword) and node.arg in {"help", "description", "summary"}:
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value
    block: list[str] = []
    start = previous = 0
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if block and line != previous + 1:
            yield start, " ".join(block)
            block = []
        if not block:
            start = line
        block.append(token.string.lstrip("#: "))
        previous = line
    if block:
        yield start, " ".join(block)


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    fenced, start = False, 0
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        item = re.match(r"\s*(?:[-*|>]|\d+\.|#+)\s", line)
        if block and (fenced or item or not line.strip()):
            yield start, " ".join(block)
            block = []
        if not fenced and line.strip():
            start = start if block else number
            block.append(re.sub(r"^\s*(?:[-*|>]|\d+\.|#+)\s+", "", line).strip())


def _page(text: str) -> Iterator[tuple[int, str]]:
    """Comments and texts of a page or a script, line by line."""
    for number, line in enumerate(text.splitlines(), 1):
        for part in re.findall(r">([^<>{}]+)<|\"([^\"]*)\"|`([^`]*)`|'([^']*)'|//\s*(.*)", line):
            words = next(p for p in (*part, "") if p or p == "")
            yield number, words


_READERS: Final = {".py": _python, ".md": _markdown, ".html": _page, ".js": _page}


def texts(area: str) -> Iterator[tuple[str, int, str]]:
    """Path, line and text of everything that people read in an area."""
    top = ROOT / area
    files = [top] if top.is_file() else sorted(top.rglob("*"))
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        reader = _READERS.get(file.suffix)
        if reader is None or any(path.startswith(skipped) for skipped in SKIPPED):
            continue
        if "__pycache__" not in path:
            for line, text in reader(file.read_text()):
                yield path, line, text


def found(area: str) -> Iterator[tuple[str, int, str, str]]:
    """Path, line, pattern and text of each suspect of an area."""
    for path, line, text in texts(area):
        for pattern in suspects(text):
            yield path, line, pattern, text


def habits() -> dict[str, int]:
    """Area → number of suspects."""
    counts = Counter(area for area in AREAS for _ in found(area))
    return dict(counts)


def poor_subjects() -> list[str]:
    """Long or non-imperative subjects of commits since COMMITS_SINCE; [] without git."""
    command = ["git", "log", "--no-merges", f"--since={COMMITS_SINCE}", "--format=%s"]
    try:
        log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [
        subject
        for subject in log.stdout.splitlines()
        if len(subject) > SUBJECT_LENGTH or _FINITE.search(subject) or suspects(subject)
    ]
