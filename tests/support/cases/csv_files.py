"""Random CSV files, whose valid rows and invalid records are known from the generation."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from anabranch_contract.queries.text_values import reader_of
from anabranch_contract.queries.types import parse_type

#: Texts for columns of each type; some are invalid for the type.
TEXTS = {
    "bigint": ("0", "-7", "9223372036854775807", " 5 ", "+3", "9223372036854775808", "1.0"),
    "int": ("0", "12", "-2147483648", "2147483648", "ten"),
    "double": ("0.5", "-0", "1e3", "2", "inf", ".5", "1,5", "abc"),
    "decimal(6,2)": ("1.5", "-12.34", "1.005", "9999.99", "10000", "1.2.3"),
    "string": ("a", " spaced ", "ünï", "NULL", "x\0y", "a,b;c", 'say "hi"', "\\", 'C:\\"', "q\nr"),
    "date": ("2024-02-29", "0001-01-01", "2024-2-9", "2023-02-29", "yesterday"),
    "timestamp": (
        *("2024-05-01 12:00:00", "2024-05-01T01:02:03.123456Z", "1969-12-31 23:59:59"),
        *("2024-05-01 12:00:00+02:00", "2024-13-01 00:00:00", "12"),
    ),
    "boolean": ("true", "F", "1", "no", "maybe"),
}
#: Fields that make their record malformed: text after a closing quote, or no closing quote in the
#: line.
MALFORMED = ('"a"b', '"a" ', '"open')


@dataclass
class CsvCase:
    """A CSV file while it is generated; at the end, readers get only ``content`` and ``options``.

    Attributes:
        spark: whether it is for Spark's format ``csv``, else for ``files``.
        rows: expected valid rows: numbers, dates as days, moments as microseconds.
        invalid: expected invalid records, as bytes.
    """

    chance: random.Random
    spark: bool
    content: bytes = b""
    options: dict[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    rows: list[tuple[object, ...]] = field(default_factory=list)
    invalid: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.chance
        self.columns = tuple(
            (f"c{i}", chance.choice(list(TEXTS))) for i in range(chance.randint(1, 5))
        )
        header = chance.random() < 0.6
        self.separator, self.end = chance.choice(",;\t|"), chance.choice(["\n", "\r\n"])
        self.multiline = not self.spark or chance.random() < 0.5
        self.null = chance.choice(["", "NULL"])
        self.shown = [name for name, _ in self.columns]
        if header:
            self.shown += ["more", "Rest, and so on"][: chance.choice([0, 0, 1, 2])]
            chance.shuffle(self.shown)
        lines = [self.line([(n, "," in n) for n in self.shown])] if header else []
        for _ in range(chance.randint(0, 12)):
            lines.append(self.record())
            if chance.random() < 0.1:
                lines.append(chance.choice([b"", b"  ", b"# comment"]))
        self.content = chance.choice([b"", b"\xef\xbb\xbf"]) + self.end.encode().join(lines)
        self.content += chance.choice(["", self.end]).encode()
        self.options = {
            **(
                {"multiLine": str(self.multiline), "escape": '"'} if self.spark else {"type": "csv"}
            ),
            **{"sep": self.separator, "header": str(header), "nullValue": self.null},
            "comment": "#",
        }

    def record(self) -> bytes:
        """Append a record, and record whether it is valid."""
        chance, kinds = self.chance, dict(self.columns)
        values = [self.value(kinds.get(name, "string")) for name in self.shown]
        fate = chance.random()
        if fate < 0.05:
            values.append(("1", False))
        elif fate < 0.1 and len(values) > 1:
            values.pop()
        line = self.line(values)
        if 0.1 <= fate < 0.15:
            before = [(text, quoted) for text, quoted in values if "\n" not in text]
            before = before[: chance.randrange(len(values))]
            line = self.line(before) + self.separator.encode() * bool(before)
            # In a multi-line file, a later line might close an open quote.
            line += chance.choice(MALFORMED[: 2 if self.multiline else 3]).encode()
        elif 0.15 <= fate < 0.2 and not values[-1][1]:
            line += b"\xff\xfe"
        if not line.strip(b" \t") or (line.startswith(b"#")):
            # A record with too many fields, except for comments and empty lines, which are no
            # records.
            line = self.line([("#", True)] * (len(self.shown) + 1))
        row = self.row(values) if line == self.line(values) else None
        if row is None:
            self.invalid.append(line)
        else:
            self.rows.append(row)
        return line

    def value(self, kind: str) -> tuple[str, bool]:
        """Draw a text for a column, and whether it is quoted."""
        chance = self.chance
        text = chance.choice(TEXTS[kind] if chance.random() < 0.85 else ("", "NULL"))
        if "\n" in text and not self.multiline:
            text = "q"
        special = any(sign in text for sign in (self.separator, '"', "\n")) or text[:1] == "#"
        return text, special or chance.random() < 0.3

    def row(self, values: list[tuple[str, bool]]) -> tuple[object, ...] | None:
        """Return the values of the stream's columns; None if one of them is invalid."""
        row: list[object] = []
        if len(values) != len(self.shown):
            return None
        for name, kind in self.columns:
            text, quoted = values[self.shown.index(name)]
            nothing = text == self.null and (self.spark or not quoted)
            nothing = nothing or (not text and (kind != "string" or (self.spark and not quoted)))
            try:
                value = None if nothing else reader_of(parse_type(kind))(text)
            except (ValueError, OverflowError):
                return None
            if value is None and not nothing:
                return None
            row.append(value)
        return tuple(row)

    def line(self, values: list[tuple[str, bool]]) -> bytes:
        """Return a record as bytes."""
        texts = ('"' + t.replace('"', '""') + '"' if quoted else t for t, quoted in values)
        return self.separator.join(texts).encode()
