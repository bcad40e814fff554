"""Subcommands of ``python -m benchmarks.papers``: what each paper's module provides."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Paper(Protocol):
    """Protocol of a module with the subcommands of one paper.

    Attributes:
        ABOUT: one line for the help text.
    """

    ABOUT: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the paper's subcommands to ``parser``."""


def command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    about: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a subcommand; return its parser, to which options can be added.

    Args:
        run: function that runs the subcommand with the parsed options, and returns the exit code.
    """
    parser = commands.add_parser(name, help=about, description=about)
    parser.set_defaults(run=run, forwards=False)
    return parser


def forward(
    commands: argparse._SubParsersAction[Any],
    name: str,
    about: str,
    main: Callable[[Sequence[str]], int],
) -> None:
    """Add a subcommand that passes all its arguments to ``main``, a module's main function."""
    parser = commands.add_parser(name, help=about, add_help=False)
    parser.set_defaults(run=main, forwards=True)
