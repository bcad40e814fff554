"""Generates ``docs/cli.md``: commands of ``anabranch`` with their arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch_client.cli.app import COMMANDS, loaded
from scripts.reference.rest import prose
from scripts.reference.table import code, table

HEAD = """\
# Command line

Made from the commands of `anabranch` (`make reference`). Examples, files of queries and exit codes:
[work from the command line](command-line.md).
"""


def page() -> str:
    """Return the text of the page."""
    lines = [HEAD]
    for name, command in commands():
        lines += [f"## `{name}`", "", *_command(name, command)]
    return "\n".join(lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, without groups."""
    stack = [(f"anabranch {name}", loaded(name)) for name in reversed(COMMANDS)]
    while stack:
        name, command = stack.pop()
        if getattr(command, "hidden", False):
            continue
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            stack += [(f"{name} {key}", value) for key, value in reversed(list(inner.items()))]


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-") and not p.hidden]
    yield from (*prose(command.help or ""), "")
    usage = [name, *("[OPTIONS]" if options else "",), *map(_usage, arguments)]
    yield from ("```text", " ".join(filter(None, usage)), "```", "")
    yield from table(
        ("argument", "meaning"), ((code(_metavar(p)), p.help or "") for p in arguments)
    )
    yield from table(
        ("option", "variable", "default", "meaning"),
        (
            (
                ", ".join(map(code, [*p.opts, *p.secondary_opts])),
                code(p.envvar or ""),
                "required" if p.required else _default(p),
                f"{p.help or ''}{' Repeatable.' if p.multiple else ''}",
            )
            for p in options
        ),
    )


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _usage(parameter: Any) -> str:
    name = _metavar(parameter) + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value in ((), [], "") or callable(value):
        return ""
    return code(getattr(value, "value", value))
