"""Parsing of YAML text to plain values; duplicate keys and deep nesting are errors.

>>> load_yaml("streams: {R: {rate: 1e2}}")
{'streams': {'R': {'rate': 100.0}}}
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from anabranch_planner.documents.fields import ProblemError

if TYPE_CHECKING:
    from yaml import SafeLoader
else:
    # The same loader in C, if PyYAML was built with it: some twenty times faster.
    SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: Maximum nesting of a YAML document (a problem file needs six levels).
MAX_DEPTH = 20


class _ProblemLoader(SafeLoader):
    """Loader of YAML that rejects duplicate keys, and reads ``1e3`` as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            text = str(key.value)
            if text in seen and key.tag != "tag:yaml.org,2002:merge":
                raise _malformed(
                    f"the key {text!r} occurs twice, the second time in line "
                    f"{key.start_mark.line + 1}",
                    "keep one of them, or rename it",
                )
            seen.add(text)
        return super().construct_mapping(node, deep)


_ProblemLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+"),
    list("-+.0123456789"),
)


def load_yaml(text: str) -> Any:
    """The plain values in the YAML document ``text``.

    Raises:
        ProblemError: the text is not YAML, has a duplicate key, or is nested too deeply.
    """
    try:
        # Check the nesting first: construction is recursive, and unlimited in the C loader.
        depth = 0
        for event in yaml.parse(text, Loader=SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise _malformed("the file is nested too deeply", "see docs/planner.md")
        return yaml.load(text, Loader=_ProblemLoader)
    except yaml.MarkedYAMLError as cause:
        mark = cause.problem_mark or cause.context_mark
        where = f" in line {mark.line + 1}" if mark is not None else ""
        reason = " ".join(str(cause.problem or cause.context or "syntax error").split())
        raise _malformed(f"this is not YAML: {reason}{where}", "check the file there") from cause
    except yaml.YAMLError as cause:
        reason = " ".join(str(cause).split())
        raise _malformed(f"this is not YAML: {reason}", "save it as UTF-8 text") from cause
    except (ValueError, OverflowError) as cause:
        # ValueError: a timestamp such as 2024-99-99, or an integer too long for Python to parse.
        reason = " ".join(str(cause).split())
        raise _malformed(f"a value can't be read: {reason}", "put it in quotes") from cause


def _malformed(message: str, remedy: str) -> ProblemError:
    return ProblemError("malformed-problem", message, remedy=remedy)
