"""Parser of the text of ``.proto`` files, in the syntaxes ``proto2`` and ``proto3``.

Options, extensions and services are skipped, since they do not change how messages are decoded;
only a field's option ``default`` is parsed.

>>> found = parse_proto('syntax = "proto3"; package p; message A { int32 x = 1; }')
>>> [(field.name, field.number) for field in found.messages["p.A"].fields]
[('x', 1)]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch_contract.connectors.schemas.declared import (
    MOST_DEEP,
    SCALARS,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    bad_schema,
    unescaped,
)

_TOKEN = re.compile(
    r"(?:\s|//[^\n]*|/\*.*?\*/)*"
    r"""(?:([A-Za-z_]\w*|\.?\d(?:[eE][+-]|[\w.])*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(.)|$)""",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_LABELS = ("optional", "required", "repeated")
_OPEN, _CLOSE = "{[(<", "}])>"
#: Maximum number of characters of a ``.proto`` file.
MOST_TEXT = 1 << 22


def parse_proto(text: str) -> ProtoFile:
    """Parse the text of a ``.proto`` file.

    Raises:
        StreamError: the text is no such file; the message names the line.
    """
    if len(text) > MOST_TEXT:
        raise bad_schema(f"it has more than {MOST_TEXT} characters")
    parser = _ProtoParser(_tokens(text))
    try:
        return parser.file()
    except IndexError:
        raise bad_schema("the text ends too early") from None


def _tokens(text: str) -> list[tuple[str, int]]:
    """Return the tokens of a ``.proto`` file with their lines; literals lose the closing quote."""
    found, at, line, counted = list[tuple[str, int]](), 0, 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            break
        word, literal, sign = match.groups()
        begin = match.start(match.lastindex) if match.lastindex else match.end()
        line += text.count("\n", counted, begin)
        counted = begin
        if literal is not None:
            content = unescaped(literal[1:-1])
            if found and found[-1][0][0] == '"':
                found[-1] = found[-1][0] + content, found[-1][1]
            else:
                found.append(('"' + content, line))
        elif word is not None or sign is not None:
            found.append((word or sign, line))
        at = match.end()
    return found


@dataclass(slots=True)
class _ProtoParser:
    """Parser of the tokens of a ``.proto`` file; reading past the last token raises IndexError."""

    tokens: Sequence[tuple[str, int]]
    at: int = 0
    #: Whether the file's syntax is ``proto3``.
    newer: bool = False

    @property
    def next(self) -> str:
        """Return the next token of the file without consuming it."""
        return self.tokens[self.at][0]

    def take(self) -> str:
        """Consume the next token of the file and return it."""
        self.at += 1
        return self.tokens[self.at - 1][0]

    def took(self, token: str) -> bool:
        """Consume the next token if it is ``token``; return whether it was."""
        found = self.at < len(self.tokens) and self.next == token
        self.at += found
        return found

    def need(self, token: str) -> None:
        """Consume ``token``; raise an error if the next token is another one."""
        if self.take() != token:
            raise self.wrong(f"{token!r} is missing")

    def wrong(self, why: str) -> Exception:
        """Return a syntax error at the token that was consumed last."""
        token, line = self.tokens[max(self.at - 1, 0)]
        return bad_schema(f"line {line}, at {token[:40]!r}: {why}")

    def name(self) -> str:
        """Consume a name without dots of the ``.proto`` file."""
        found = self.take()
        if _NAME.fullmatch(found) is None:
            raise self.wrong("this is not a name")
        return found

    def path(self) -> str:
        """Consume a name with dots of the ``.proto`` file."""
        found = "." if self.took(".") else ""
        found += self.name()
        while self.took("."):
            found += "." + self.name()
        return found

    def number(self) -> int:
        """Consume an integer of the ``.proto`` file."""
        sign = -1 if self.took("-") else 1
        text = self.take().lower()
        octal = len(text) > 1 and text.startswith("0") and text.isdigit()
        try:
            return sign * int(text, 8 if octal else 16 if text.startswith("0x") else 10)
        except ValueError:
            raise self.wrong("this is not an integer") from None

    def over(self) -> None:
        """Skip the rest of a statement of the ``.proto`` file, or the end of its block."""
        depth = 0
        while True:
            token = self.take()
            if token in _OPEN:
                depth += 1
            elif token in _CLOSE:
                depth -= 1
                if depth <= 0 and token == "}":
                    return
            elif token == ";" and depth <= 0:
                return

    def file(self) -> ProtoFile:
        """Parse all tokens of the ``.proto`` file."""
        file = ProtoFile()
        while self.at < len(self.tokens):
            word = self.take()
            if word == "syntax":
                self.need("=")
                syntax = self.take()
                if syntax not in ('"proto2', '"proto3'):
                    raise self.wrong("the syntax is neither proto2 nor proto3")
                self.newer = syntax == '"proto3'
                self.need(";")
            elif word == "edition":
                raise self.wrong("editions are not read, only proto2 and proto3")
            elif word == "package":
                file.package = self.path()
                self.need(";")
            elif word == "import":
                if self.next in ("public", "weak"):
                    self.take()
                file.imports.append(self.take().removeprefix('"'))
                self.need(";")
            elif word == "message":
                file.roots.append(self.message(file, file.package, 0))
            elif word == "enum":
                self.enum(file, file.package)
            elif word in ("option", "extend", "service"):
                self.over()
            elif word != ";":
                raise self.wrong("this is no declaration")
        return file

    def message(self, file: ProtoFile, scope: str, depth: int) -> str:
        """Parse a message from its name on, declare it in ``file``, and return its full name."""
        return self.body(file, f"{scope}.{self.name()}".removeprefix("."), depth)

    def body(self, file: ProtoFile, name: str, depth: int) -> str:
        """Parse the block of a message's declaration."""
        if depth > MOST_DEEP:
            raise self.wrong("messages are nested too deep")
        self.need("{")
        file.declare(ProtoMessage(name))
        fields, inner = list[ProtoField](), list[str]()
        while not self.took("}"):
            self.member(file, name, depth, fields, inner, "")
        file.messages[name] = ProtoMessage(name, tuple(fields), tuple(inner))
        return name

    def member(
        self, file: ProtoFile, scope: str, depth: int, fields: list[ProtoField],
        inner: list[str], oneof: str,
    ) -> None:  # fmt: skip
        """Parse a statement of a message, or of a ``oneof`` in it."""
        word, after = self.next, self.tokens[self.at + 1][0]
        declares = _NAME.fullmatch(after) is not None
        if word == ";":
            self.take()
        elif word == "option" and (declares or after == "("):
            self.over()
        elif word == "message" and declares and not oneof:
            self.take()
            inner.append(self.message(file, scope, depth + 1))
        elif word == "enum" and declares and not oneof:
            self.take()
            self.enum(file, scope)
        elif word == "oneof" and declares and not oneof:
            self.take()
            name = self.name()
            self.need("{")
            while not self.took("}"):
                self.member(file, scope, depth, fields, inner, name)
        elif word in ("extensions", "reserved", "extend") and self.tokens[self.at + 2][0] != "=":
            self.over()
        elif word == "map" and after == "<":
            fields.append(self.map(file, scope))
        else:
            fields.append(self.field(file, scope, depth, inner, oneof))

    def field(
        self, file: ProtoFile, scope: str, depth: int, inner: list[str], oneof: str
    ) -> ProtoField:
        """Parse a field or group of a Protobuf message."""
        label = ""
        if self.next in _LABELS:
            label = self.take()
        type = self.path()
        name = self.name()
        self.need("=")
        number = self.number()
        default = self.options()
        scalar = type in SCALARS
        one = ProtoField(
            name, number, type if scalar else "", "" if scalar else type,
            repeated=label == "repeated",
            presence=label != "repeated" and (not self.newer or bool(label or oneof)),
            default=default, oneof=oneof, checked=self.newer and type == "string",
        )  # fmt: skip
        if type == "group" and self.next == "{":
            full = f"{scope}.{name}"
            inner.append(self.body(file, full, depth + 1))
            return replace(one, name=name.lower(), kind="group", type=f".{full}")
        self.need(";")
        return one

    def map(self, file: ProtoFile, scope: str) -> ProtoField:
        """Parse a map field of a Protobuf message, and declare the type of its entries."""
        self.take()
        self.need("<")
        key = self.path()
        if key not in SCALARS or key in ("double", "float", "bytes"):
            raise self.wrong("keys of a map have no such type")
        self.need(",")
        value = self.path()
        self.need(">")
        name = self.name()
        self.need("=")
        number = self.number()
        self.options()
        self.need(";")
        entry = f"{scope}.{''.join(part[:1].upper() + part[1:] for part in name.split('_'))}Entry"
        scalar = value in SCALARS
        fields = (
            ProtoField("key", 1, key, presence=False, checked=self.newer and key == "string"),
            ProtoField(
                "value", 2, value if scalar else "", "" if scalar else value, presence=False,
                checked=self.newer and value == "string",
            ),
        )  # fmt: skip
        file.declare(ProtoMessage(entry, fields, entry=True))
        return ProtoField(name, number, "message", f".{entry}", repeated=True, presence=False)

    def options(self) -> str | None:
        """Parse the options of a Protobuf field, and return its default."""
        default = None
        if not self.took("["):
            return None
        while True:
            if self.next == "default":
                self.take()
                self.need("=")
                sign = "-" if self.took("-") else ""
                default = sign + self.take().removeprefix('"')
            depth = 0
            while depth or self.next not in ",]":
                token = self.take()
                depth += (token in _OPEN) - (token in _CLOSE)
            if self.take() == "]":
                return default

    def enum(self, file: ProtoFile, scope: str) -> None:
        """Parse an enum from its name on."""
        name = f"{scope}.{self.name()}".removeprefix(".")
        self.need("{")
        values = list[tuple[str, int]]()
        while not self.took("}"):
            word = self.take()
            if word == ";":
                continue
            if word in ("option", "reserved") and self.next != "=":
                self.over()
                continue
            if _NAME.fullmatch(word) is None:
                raise self.wrong("this is not a name")
            self.need("=")
            values.append((word, self.number()))
            self.options()
            self.need(";")
        if not values:
            raise self.wrong("the enum has no values")
        file.declare(ProtoEnum(name, tuple(values), closed=not self.newer))
