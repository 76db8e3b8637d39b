"""Protobuf's text format, read without a schema: messages, lists, strings, numbers, comments.

The grammar is that of https://protobuf.dev/reference/protobuf/textformat-spec, without extensions
and `Any`. The JSON form of a message is read into the same records.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeVar

from harness.contract import UsageError

MOST_NESTED = 64
MOST_BYTES = 2**26
_MOST_QUOTED = 40

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n\f\v]+|\#[^\n]*)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
        (?![0-9A-Za-z_.]))
    |(?P<word>-?[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<plain>.))"
)
_PLAIN = {
    **dict(zip("nrtabfv", "\n\r\t\a\b\f\v", strict=True)),
    **{letter: letter for letter in "?\\'\""},
}
_CLOSING = {"{": "}", "<": ">"}

T = TypeVar("T", "Scalar", "Message")


class Scalar(NamedTuple):
    """A value that is no message: its text, whether that was quoted, and where it stands."""

    text: str
    is_quoted: bool
    place: str


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message in order, several of a name where it is repeated.

    `place` says where it begins, for errors: `file, line 12`.
    """

    fields: tuple[tuple[str, "Scalar | Message"], ...]
    place: str

    def all(self, name: str) -> "list[Scalar | Message]":
        """Return the values of a field, none where it is not there."""
        return [value for field, value in self.fields if field == name]

    def messages(self, name: str) -> "list[Message]":
        """Return the values of a field of messages; raises UsageError where one is none."""
        found = []
        for value in self.all(name):
            if not isinstance(value, Message):
                raise UsageError(f"{value.place}: {name} must be a message in braces.")
            found.append(value)
        return found

    def message(self, name: str) -> "Message | None":
        """Return the one message of a field; raises UsageError where there are several."""
        return self._one(name, self.messages(name))

    def scalars(self, name: str) -> list[Scalar]:
        """Return the values of a field; raises UsageError where one is a message."""
        found = []
        for value in self.all(name):
            if isinstance(value, Message):
                raise UsageError(f"{value.place}: {name} must be a value, not a message.")
            found.append(value)
        return found

    def text(self, name: str) -> str:
        """Return the one text of a field, empty where it is not there; raises UsageError."""
        found = self._one(name, self.scalars(name))
        return "" if found is None else found.text

    def whole(self, name: str) -> int | None:
        """Return the one whole number of a field; raises UsageError where it is something else."""
        found = self._one(name, self.scalars(name))
        return None if found is None else whole(found, name)

    def flag(self, name: str) -> bool:
        """Return whether a field is true; raises UsageError where it is no boolean."""
        found = self._one(name, self.scalars(name))
        if found is None or found.text in ("false", "False", "f", "0"):
            return False
        if found.text in ("true", "True", "t", "1"):
            return True
        raise UsageError(f"{found.place}: {name} must be true or false, not '{found.text}'.")

    def _one(self, name: str, found: list[T]) -> T | None:
        if len(found) > 1:
            raise UsageError(f"{found[1].place}: {name} is given twice, but can be there once.")
        return found[0] if found else None


def whole(value: Scalar, name: str) -> int:
    """Return a whole number, decimal, octal or hexadecimal; raises UsageError."""
    text = value.text
    is_octal = re.fullmatch(r"-?0[0-7]+", text) and not value.is_quoted
    try:
        if not re.fullmatch(r"-?[0-9a-fA-FxX]+", text):  # what Python takes and protobuf does not
            raise ValueError(text)
        return int(text, 8 if is_octal else 0)
    except ValueError:
        raise UsageError(f"{value.place}: {name} must be a whole number, not '{text}'.") from None


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens = self._split(text)
        self._next = next(self._tokens)

    def _split(self, text: str) -> Iterator[_Token]:
        line, place = 1, 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                self._refuse_letter(text, place, line)
            kind = str(match.lastgroup)
            if kind != "space":
                yield _Token(kind, match[0], line)
            line += match[0].count("\n")
            place = match.end()
        yield _Token("end", "", line)

    def _refuse_letter(self, text: str, place: int, line: int) -> NoReturn:
        rest = text[place : place + _MOST_QUOTED].partition("\n")[0]
        if rest[0] in "\"'":
            raise UsageError(f"{self._place(line)}: the string {rest} has no end on its line.")
        raise UsageError(f"{self._place(line)}: '{rest}' is nothing that protobuf text can hold.")

    def _place(self, line: int) -> str:
        return f"{self._file}, line {line}"

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _takes(self, *marks: str) -> str:
        if self._next.kind == "mark" and self._next.text in marks:
            return self._take().text
        return ""

    def _wrong(self, token: _Token, wanted: str) -> UsageError:
        text = token.text[:_MOST_QUOTED]
        found = "the end of the file" if token.kind == "end" else f"'{text}'"
        return UsageError(f"{self._place(token.line)}: {wanted} is missing before {found}.")

    def message(self, closing: str, line: int, nested: int = 0) -> Message:
        """Read fields up to the mark that closes the message, or the end of the file."""
        if nested > MOST_NESTED:
            raise UsageError(
                f"{self._place(line)}: messages must be nested {MOST_NESTED} deep at most."
            )
        fields: list[tuple[str, Scalar | Message]] = []
        while True:
            token = self._take()
            if token.kind == "end" and not closing:
                break
            if token.kind == "mark" and token.text == closing:
                break
            if token.kind != "word" or token.text.startswith("-"):
                wanted = f"'{closing}', for what begins in line {line}," if closing else ""
                raise self._wrong(token, " or ".join(filter(None, ("the name of a field", wanted))))
            fields += ((token.text, value) for value in self._values(token, nested))
            self._takes(",", ";")
        return Message(tuple(fields), self._place(line))

    def _values(self, name: _Token, nested: int) -> "Iterator[Scalar | Message]":
        has_colon = bool(self._takes(":"))
        if not self._takes("["):
            yield self._value(name, has_colon, nested)
            return
        if self._takes("]"):
            return
        while True:
            yield self._value(name, has_colon, nested)
            if not self._takes(","):
                break
        if not self._takes("]"):
            raise self._wrong(self._next, f"',' or ']' in the list of {name.text}")

    def _value(self, name: _Token, has_colon: bool, nested: int) -> "Scalar | Message":
        if mark := self._takes("{", "<"):
            return self.message(_CLOSING[mark], name.line, nested + 1)
        if not has_colon:
            raise self._wrong(self._next, f"':' or '{{' after {name.text}")
        token = self._take()
        if token.kind == "string":
            parts = [self._unquoted(token)]
            while self._next.kind == "string":
                parts.append(self._unquoted(self._take()))
            return Scalar("".join(parts), True, self._place(token.line))
        if token.kind in ("word", "number"):
            return Scalar(token.text, False, self._place(token.line))
        raise self._wrong(token, f"the value of {name.text}")

    def _unquoted(self, token: _Token) -> str:
        body, made, place = token.text[1:-1], bytearray(), 0
        if "\\" not in body:
            return body
        try:
            for match in _ESCAPE.finditer(body):
                made += body[place : match.start()].encode()
                made += _escaped(match)
                place = match.end()
            made += body[place:].encode()
            return made.decode()
        except (LookupError, ValueError, OverflowError):
            text = token.text[:_MOST_QUOTED]
            raise UsageError(
                f"{self._place(token.line)}: the string {text} has an escape that makes no text."
            ) from None


def _escaped(match: re.Match[str]) -> bytes:
    if match["octal"]:
        return bytes([int(match["octal"], 8)])
    if match["hex"]:
        return bytes([int(match["hex"], 16)])
    if code := match["short"] or match["long"]:
        return chr(int(code, 16)).encode()
    return _PLAIN[match["plain"]].encode()


def parse_text(data: bytes, file: str) -> Message:
    """Return a message in protobuf's text format.

    Raises:
        UsageError: it is malformed or longer than 64 MiB; names the line, counted from 1.
    """
    if len(data) > MOST_BYTES:
        raise UsageError(f"{file} must hold at most {MOST_BYTES:,} bytes of protobuf text.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} cannot be read: protobuf text must be UTF-8.") from None
    return _Reader(text, file).message("", 1)


def from_json(held: Mapping[str, Any], place: str, nested: int = 0) -> Message:
    """Return a message from its JSON form, whose names are snake_case or camelCase.

    Raises:
        UsageError: it is nested too deep.
    """
    if nested > MOST_NESTED:
        raise UsageError(f"{place}: messages must be nested {MOST_NESTED} deep at most.")
    fields: list[tuple[str, Scalar | Message]] = []
    for key, value in held.items():
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()
        values = value if isinstance(value, list) else [value]
        for number, each in enumerate(values, start=1):
            where = f"{place}, {name}" + (f" {number}" if isinstance(value, list) else "")
            if isinstance(each, dict):
                fields.append((name, from_json(each, where, nested + 1)))
            elif each is not None:
                text = str(each).lower() if isinstance(each, bool) else str(each)
                fields.append((name, Scalar(text, isinstance(each, str), where)))
    return Message(tuple(fields), place)
