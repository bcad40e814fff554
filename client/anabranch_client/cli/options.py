"""Options of commands, generated from fields of REST bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import EnumType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from anabranch_contract.rest.documents import Document


def field_options(
    body: type[Document], names: Iterable[str], flags: Mapping[str, str] | None = None
) -> Iterator[inspect.Parameter]:
    """An option for each named field of ``body``, with the field's description as help.

    Args:
        flags: field -> option, where it is not ``--field`` (or ``--field/--no-field`` for a
            boolean).
    """
    for name in names:
        field = body.model_fields[name]
        kinds = [_plain(kind) for kind in (field.annotation, *get_args(field.annotation))]
        several = any(get_origin(kind) is list for kind in kinds)
        kind: Any = next((one for one in (bool, int, float) if one in kinds), str)
        text = " ".join(filter(None, (choices(kinds), body.meaning(name)))).replace("`", "'")
        given = [flags[name]] if flags and name in flags else []
        option = typer.Option(*given, help=f"{text.rstrip('.')} (repeatable)." if several else text)
        yield option_of(name, list[str] if several else kind, option)


def _plain(kind: Any) -> Any:
    """The plain Python type of an annotated type, without constraints on values."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def choices(kinds: Iterable[Any]) -> str:
    """The values of the enumeration among ``kinds``, as a sentence; empty if there is none."""
    found = [
        *(kind.__members__.values() for kind in kinds if isinstance(kind, EnumType)),
        *(get_args(kind) for kind in kinds if get_origin(kind) is Literal),
    ]
    return "".join(f"{', '.join(map(str, values))}." for values in found)


def option_of(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A command-line option whose default is None: not given."""
    annotated: Any = Annotated
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=annotated[kind | None, option],
    )


def with_options(
    options: Iterable[inspect.Parameter],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that replaces the parameter ``**keywords`` of a command by ``options``."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())
        at = next(i for i, one in enumerate(own) if one.kind is inspect.Parameter.VAR_KEYWORD)
        parameters = [*own[:at], *options, *own[at + 1 :]]
        signature = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in signature}
        return command

    return decorated


def given(**options: Any) -> dict[str, Any]:
    """The options that the user gave: those whose value is not None."""
    return {name: value for name, value in options.items() if value not in (None, [])}
