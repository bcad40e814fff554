"""The statements of an SQL file, with their positions.

The file is only split at semicolons outside string literals, quoted names and comments; the
service parses the statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<space> \s+ )
    | (?P<end> ; )
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`
    | [^\s;'"`/-]+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
#: The comment before a statement that names its query.
_NAME = re.compile(r"--\s*name:\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class FileStatement:
    """One statement of a file, without the comments before it and the semicolon after it.

    Attributes:
        line, column: position of its beginning in the file, from 1.
        name: the name in a comment before it, ``-- name: delays``; None: no such comment.
    """

    text: str
    line: int
    column: int
    name: str | None

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Convert line and column in the statement to line and column in the file."""
        return self.line + line - 1, column + (self.column - 1 if line == 1 else 0)


def statements(text: str) -> Iterator[FileStatement]:
    """Split a file into its statements.

    >>> found = list(statements("-- name: a\\nSELECT ';';\\nSELECT 2"))
    >>> [(one.name, one.text, one.line) for one in found]
    [('a', "SELECT ';'", 2), (None, 'SELECT 2', 3)]
    """
    begin: int | None = None
    name: str | None = None
    end = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "end":
            if begin is not None:
                yield _statement(text, begin, end, name)
            begin, name = None, None
        elif kind == "comment" and begin is None:
            found = _NAME.fullmatch(token[0])
            name = found[1] if found else name
        elif kind is None:
            begin, end = token.start() if begin is None else begin, token.end()
    if begin is not None:
        yield _statement(text, begin, end, name)


def _statement(text: str, begin: int, end: int, name: str | None) -> FileStatement:
    line = text.count("\n", 0, begin) + 1
    column = begin - (text.rfind("\n", 0, begin) + 1) + 1
    return FileStatement(text[begin:end], line, column, name)
