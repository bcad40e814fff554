r"""Regular expressions of Java, which Spark's functions take, rewritten for a linear engine (RE2).

In the rewriting, ``.`` (no line terminator) and ``\s`` (with the vertical tab) have Java's meaning.
Lookarounds, backreferences, possessive quantifiers, intersections of classes and flags in the
middle are refused, since RE2 lacks them or gives them another meaning.

>>> rewritten(r"(\w+)\s").text
'(\\w+)[\\t\\n\\x0B\\f\\r ]'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_TERMINATORS = r"\n\r\x{85}\x{2028}\x{2029}"
_SPACE = r"\t\n\x0B\f\r "
_ENDS = rf"(?:\r\n|[{_TERMINATORS}])?\z"
#: Letters that, after a backslash, have the same meaning in Java and RE2.
_SAME = frozenset("dDwWbBAztnrf")
_CATEGORY = re.compile(r"\{(L|Lu|Ll|Lt|Lm|Lo|N|Nd|Nl|No|P|S|Z|Zs|M|C)\}")
_COUNTED = re.compile(r"\{(\d{1,4})(,(\d{0,4}))?\}")
_GROUP = re.compile(r"\(\?(?::|<([A-Za-z][A-Za-z0-9]*)>)")
#: Maximum number of repetitions of a counted quantifier.
MOST_REPEATS = 1000
#: Maximum number of groups of an expression.
MOST_GROUPS = 9


@dataclass(frozen=True, slots=True)
class Regular:
    r"""A rewritten regular expression. ``text``: the form in which ``$`` matches at the end of a
    text; ``condition``: the form in which ``$`` matches also before a last line terminator, as in
    Java, but includes it in the match; ``groups``: number of groups; ``takes_nothing``: whether an
    empty text matches."""

    text: str
    condition: str
    groups: int
    takes_nothing: bool


@lru_cache(maxsize=1024)
def rewritten(pattern: str) -> Regular:
    """Rewrite Java's regular expression ``pattern``.

    Raises:
        ValueError: the expression is invalid or not supported; the message gives the reason.
    """
    flags, rest = "", pattern
    leading = re.match(r"\(\?([a-zA-Z]+)\)", pattern)
    if leading:
        flags, rest = leading[1], pattern[leading.end() :]
        if set(flags) - set("is"):
            raise ValueError(f"the flags {flags} are not supported: i and s are")
    scanner = _Scanner(rest, is_single="s" in flags)
    scanner.scan()
    head = "(?i)" if "i" in flags else ""
    parts = scanner.parts
    text = head + "".join(r"\z" if part == "$" else part for part in parts)
    try:
        # Replace escapes that Python spells differently, since only the structure is checked here.
        read = re.compile(re.sub(r"\\[pP]\{\w+\}|\\x\{\w+\}", "x", text).replace(r"\z", r"\Z"))
    except re.error as cause:
        raise ValueError(f"it is no regular expression: {cause}") from cause
    condition = head + "".join(_ENDS if part == "$" else part for part in parts)
    return Regular(text, condition, scanner.groups, read.fullmatch("") is not None)


@lru_cache(maxsize=1024)
def rewritten_replacement(replacement: str, groups: int) -> str:
    r"""Rewrite Java's replacement text for a regular expression, in which ``$1`` means a group.

    Raises:
        ValueError: it names a group beyond the number ``groups``, or ends with a backslash.
    """
    found, at = "", 0
    while at < len(replacement):
        char = replacement[at]
        following = replacement[at + 1 : at + 2]
        if char == "\\":
            if not following:
                raise ValueError("a backslash ends the replacement")
            found += "\\\\" if following == "\\" else following
            at += 2
        elif char == "$":
            if not following.isdecimal() or int(following) > groups:
                raise ValueError(f"${following} is no group of the expression: it has {groups}")
            found += "\\" + following
            at += 2
        else:
            found += char
            at += 1
    return found


class _Scanner:
    """Rewriter of one regular expression, from left to right."""

    def __init__(self, pattern: str, *, is_single: bool) -> None:
        self.pattern, self.at = pattern, 0
        self.parts: list[str] = []
        self.groups = 0
        #: Maximum repetitions of the last element, and of an element in each open group.
        self._last, self._inside = 1, [1]
        self._any = "(?s:.)" if is_single else f"[^{_TERMINATORS}]"

    def scan(self) -> None:
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char not in "*+?{":
                self._last = self._inside.pop() if char == ")" and len(self._inside) > 1 else 1
            if char == "\\":
                self.parts.append(self._escaped(within=False))
            elif char == "[":
                self._class()
            elif char == "(":
                self._open()
            elif char in "*+?{":
                self._quantify(char)
            else:
                self.parts.append(self._any if char == "." else char)
                self.at += 1

    def _escaped(self, *, within: bool) -> str:
        """Return the rewriting of a regular expression's escape; ``within``: in a class."""
        char = self.pattern[self.at + 1 : self.at + 2]
        whole, self.at = "\\" + char, self.at + 2
        if not char:
            raise ValueError("it ends in a backslash")
        if char == "s":
            return _SPACE if within else f"[{_SPACE}]"
        if char == "S" and not within:
            return f"[^{_SPACE}]"
        if char in "pP":
            found = _CATEGORY.match(self.pattern, self.at)
            if found is None:
                raise ValueError(f"{whole} is supported with general categories, as in \\p{{Lu}}")
            self.at = found.end()
            return whole + found[0]
        if char in "ux":
            length = 4 if char == "u" else 2
            digits = self.pattern[self.at : self.at + length]
            if not re.fullmatch(f"[0-9A-Fa-f]{{{length}}}", digits):
                raise ValueError(f"{whole} is not followed by hexadecimal digits")
            self.at += len(digits)
            return f"\\x{{{digits}}}"
        if char in _SAME and not (within and char in "bBAz"):
            return whole
        if char.isascii() and not char.isalnum():
            return whole
        raise ValueError(f"{whole} is not supported")

    def _class(self) -> None:
        end = self.at + 1
        found, self.at = "[", end
        if self.pattern[self.at : self.at + 1] == "^":
            found += "^"
            self.at += 1
        if self.pattern[self.at : self.at + 1] == "]":
            raise ValueError("] begins a class: write \\]")
        while self.at < len(self.pattern) and self.pattern[self.at] != "]":
            char = self.pattern[self.at]
            if char == "\\":
                found += self._escaped(within=True)
                continue
            if char == "[" or self.pattern.startswith("&&", self.at):
                raise ValueError(f"{char} in a class: write \\{char}")
            found += char
            self.at += 1
        if self.at >= len(self.pattern):
            raise ValueError("a class is not closed")
        self.at += 1
        self.parts.append(found + "]")

    def _open(self) -> None:
        """Rewrite the beginning of a regular expression's group."""
        self._inside.append(1)
        if not self.pattern.startswith("(?", self.at):
            self.parts.append("(")
            self.at += 1
        else:
            found = _GROUP.match(self.pattern, self.at)
            if found is None:
                shown = self.pattern[self.at : self.at + 4]
                raise ValueError(f"{shown} is not supported: groups are ( and (?:")
            self.at = found.end()
            self.parts.append(f"(?P<{found[1]}>" if found[1] else "(?:")
            if not found[1]:
                return
        self.groups += 1
        if self.groups > MOST_GROUPS:
            raise ValueError(f"it has more than {MOST_GROUPS} groups")

    def _quantify(self, char: str) -> None:
        """Rewrite the quantifier ``char`` of a regular expression."""
        taken = char
        if char == "{":
            counted = _COUNTED.match(self.pattern, self.at)
            if counted is None:
                raise ValueError("{ begins no number of repetitions: write \\{")
            taken = counted[0]
            own = max(int(counted[1]), int(counted[3] or 0), 1)
            self._last *= own
            if self._last > MOST_REPEATS:
                more = ", with those inside it" if self._last > own else ""
                raise ValueError(f"{taken} is more than {MOST_REPEATS} repetitions{more}")
        self._inside[-1] = max(self._inside[-1], self._last)
        self.at += len(taken)
        following = self.pattern[self.at : self.at + 1]
        if following == "+":
            raise ValueError(f"{taken}+ is possessive: write {taken}")
        if following == "?":
            taken, self.at = taken + "?", self.at + 1
        self.parts.append(taken)
