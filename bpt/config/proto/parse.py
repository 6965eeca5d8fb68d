"""The reader of text format: a recursive-descent parser that records where each field is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.base.errors import PrototxtError, did_you_mean, excerpt
from bpt.base.origin import FieldPath, Origin, locate
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import field_by_name, is_message, is_repeated
from bpt.config.proto.tokens import (
    RANGES,
    BadValueError,
    Token,
    TokenKind,
    to_bool,
    to_enum,
    to_float,
    to_integer,
    tokenize,
    unquote,
)
from bpt.config.proto.upgrade.v1 import PARAM_FIELDS, TYPES
from bpt.config.proto.words import field_of

_CAPITALS = {pb.V1LayerParameter.LayerType.Name(old): today for old, today in TYPES.items()}
_TODAYS = {today: old for old, today in _CAPITALS.items() if today}


def type_today(old: str) -> str:
    """Return ``"SoftmaxWithLoss"`` for ``"SOFTMAX_LOSS"``; ``""`` if that is no type of the old format."""
    return _CAPITALS.get(old, "")


def value_hint(message: Message, field: str, text: str) -> str:
    """Return how to write the value ``text``, which does not fit ``field``, if it is in the other format.

    The result is ``""`` if it is not.
    """
    written = text.strip("\"'")
    if field != "type":
        return ""
    if isinstance(message, pb.LayerParameter) and type_today(written):
        return f'; write "{type_today(written)}", or, for the old format, "layers" instead of "layer"'
    if isinstance(message, pb.V1LayerParameter) and text != written and written in _TODAYS:
        return f'; in "layers", the old format, it is {_TODAYS[written]}; today\'s format is "layer"'
    return ""


def field_hint(message: Message, field: str) -> str:
    """Return the meaning of the unknown ``field`` of ``message`` in the other format or another program."""
    if isinstance(message, pb.LayerParameter) and field in PARAM_FIELDS:
        return f'; it is of the old format, "layers"; in "layer" write param {{ {PARAM_FIELDS[field]} }}'
    if isinstance(message, pb.V1LayerParameter) and field == "param":
        return (
            '; in "layers", the old format, lr_mult and decay_mult are blobs_lr and weight_decay; '
            'write "layer" for param { … }'
        )
    return f"; here it is {here}" if (here := field_of(message, field)) else ""


M = TypeVar("M", bound=Message)
Scalar = int | float | bool | str | bytes

DEEPEST = 100
"""The deepest nesting of messages, including the outermost; protobuf's own limit in binary."""

_CLOSING = {"{": "}", "<": ">"}
_FLOATS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)


@dataclass(frozen=True)
class ParsedText(Generic[M]):
    """A message read from text, and where each of its fields was written.

    ``origins`` has an entry for every field that the text sets: ``("base_lr",)``, ``("layer", 3)``, ``("layer", 3,
    "type")``, and for skipped settings of layers. A list has one for each element and one under its plain name,
    ``("layer",)``: the place where it starts. ``path`` is the file, or its replacement in messages.
    """

    message: M
    origins: dict[FieldPath, Origin]
    path: str

    def origin(self, *where: str | int) -> Origin:
        """Return the place of the field ``where`` or, if it is not set, of the nearest field around it."""
        return locate(self.origins, where, self.path)


SETTINGS = "_param"
"""The suffix of the fields that hold the settings of a layer type."""


def unknown_settings(origins: Mapping[FieldPath, Origin]) -> list[str]:
    """Return the settings of a layer that parse_text has skipped, since the schema lacks them.

    ``origins`` has the places of the layer's fields, with the layer itself at ``()``.
    """
    known = pb.LayerParameter.DESCRIPTOR.fields_by_name
    return [str(where[0]) for where in origins if len(where) == 1 and where[0] not in known]


def parse_text(
    text: str, message_class: type[M], path: str = "<string>", *, partial: bool = False, passing: bool = False
) -> ParsedText[M]:
    """Read a message of ``message_class`` from text format.

    Nesting is as deep as the schema at most, in which no message contains itself. In a schema where one does, it is no
    deeper than ``DEEPEST``. So no text can exhaust the stack.

    Args:
        path: the name of the text in errors and origins.
        partial: whether fields that the schema requires may be missing.
        passing: whether to skip messages of layers whose name ends in ``_param`` and is not in the schema. Only
            ``origins`` has them: the builder of the layer reports an unknown type before it reads its settings.

    Raises:
        PrototxtError: with line and column, for everything that Caffe refuses: malformed text, unknown fields and
            values, values of the wrong type or out of range, single fields given twice, missing required fields.
    """
    message = message_class()
    parser = _Parser(text, path, passing)
    parser.read_fields(message, (), opened_by=None)
    parsed = ParsedText(message, parser.origins, path)
    if not partial:
        check_complete(message, parsed.origins, path)
    return parsed


def check_complete(message: Message, origins: dict[FieldPath, Origin], path: str) -> None:
    """Raise PrototxtError if ``message`` misses a required field anywhere."""
    errors: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]
    for missing in errors:
        steps = re.findall(r"\w+", missing)
        where: FieldPath = tuple(int(step) if step.isdigit() else step for step in steps)
        raise PrototxtError(f'"{where[-1]}" is missing', locate(origins, where, path))


class _Parser:
    """One pass over the tokens of one text."""

    def __init__(self, text: str, path: str, passing: bool) -> None:
        self._passing = passing
        self.origins: dict[FieldPath, Origin] = {}
        self._path = path
        self._depth = 0
        self._tokens = tokenize(text, path)
        self._token = next(self._tokens)

    def read_fields(self, message: Message, where: FieldPath, opened_by: Token | None) -> None:
        """Read fields into ``message`` up to the bracket that closes ``opened_by`` (None: to the end)."""
        closing = _CLOSING[opened_by.text] if opened_by else None
        while self._token.kind is TokenKind.NAME:
            self._read_field(message, where)
        if closing is None and self._token.kind is TokenKind.END:
            return
        if closing is not None and self._token.text == closing:
            self._advance()
            return
        expected = f"a field of {message.DESCRIPTOR.name}"
        if opened_by:
            expected += f' or the "{closing}" that closes the "{opened_by.text}" of line {opened_by.line}'
        raise self._error(f"expected {expected}, found: {self._token}")

    def _read_field(self, message: Message, where: FieldPath) -> None:
        name = self._advance()
        field = field_by_name(message, name.text)
        if field is None:
            if self._passing and isinstance(message, pb.LayerParameter) and name.text.endswith(SETTINGS):
                self._skip_message(name, where)
                return
            known = message.DESCRIPTOR.fields_by_name
            hint = field_hint(message, name.text) or did_you_mean(name.text, known, closely=True)
            raise self._error(f'{message.DESCRIPTOR.name} has no field "{name}"{hint}', name)
        where = (*where, name.text)
        if where in self.origins and not is_repeated(field):
            first = self.origins[where]
            raise self._error(f'"{name.text}" is given twice; first in line {first.line}', name)
        self.origins.setdefault(where, self._origin(name))
        if not self._accept(":") and not is_message(field):
            hint = field_hint(message, name.text) if self._token.text in _CLOSING else ""
            found = self._token
            if found.text == "=":
                hint = f"; write {name.text}:{self._after_equals_sign()}"
            raise self._error(f'expected ":" after "{name.text}", found: {found}{hint}', found)
        if not is_repeated(field):
            self._read_value(message, field, where)
        elif self._token.text == "[":
            self._read_list(message, field, where)
        else:
            self._read_element(message, field, where, self._origin(name))
        if not self._accept(","):
            self._accept(";")

    def _skip_message(self, name: Token, where: FieldPath) -> None:
        """Skip the message after ``name``, whatever its content, and record its place."""
        self.origins.setdefault((*where, name.text), self._origin(name))
        self._accept(":")
        if self._token.text not in _CLOSING:
            raise self._error(f'expected "{{" after "{name.text}", found: {self._token}')
        open_: list[Token] = []
        while True:
            if self._token.kind is TokenKind.END:
                first = open_[-1]
                closing = f'the "{_CLOSING[first.text]}" that closes the "{first.text}" of line {first.line}'
                raise self._error(f"expected {closing}, found: {self._token}")
            token = self._advance()
            if token.kind is TokenKind.SYMBOL and token.text in _CLOSING:
                open_.append(token)
            elif token.kind is TokenKind.SYMBOL and token.text == _CLOSING[open_[-1].text]:
                open_.pop()
            if not open_:
                break
        if not self._accept(","):
            self._accept(";")

    def _read_list(self, message: Message, field: FieldDescriptor, where: FieldPath) -> None:
        """Read ``[a, b, c]``."""
        self._advance()
        if self._accept("]"):
            return
        while True:
            self._read_element(message, field, where, self._origin(self._token))
            if self._accept("]"):
                return
            if not self._accept(","):
                raise self._error(f'expected "," or "]" in the list of "{field.name}", found: {self._token}')

    def _read_element(self, message: Message, field: FieldDescriptor, where: FieldPath, origin: Origin) -> None:
        """Read one more element of a list; ``where`` is the list."""
        where = (*where, len(getattr(message, field.name)))
        self.origins[where] = origin
        self._read_value(message, field, where)

    def _read_value(self, message: Message, field: FieldDescriptor, where: FieldPath) -> None:
        """Read the value after the name of a field: a single one, or a message in brackets."""
        if is_message(field):
            if self._token.text not in _CLOSING:
                hint = f"; write {field.name} {{" if self._token.text == "=" else ""
                raise self._error(f'expected "{{" after "{field.name}", found: {self._token}{hint}')
            opened_by = self._advance()
            self._depth += 1
            if self._depth >= DEEPEST:
                raise self._error(f"messages are nested more than {DEEPEST} deep", opened_by)
            self.read_fields(_new_child(message, field), where, opened_by)
            self._depth -= 1
        elif is_repeated(field):
            getattr(message, field.name).append(self._scalar(message, field))
        else:
            setattr(message, field.name, self._scalar(message, field))

    def _scalar(self, message: Message, field: FieldDescriptor) -> Scalar:
        start = self._token
        text = self._advance().text
        if text == "-":
            text += self._advance().text
        try:
            if field.type in RANGES:
                return to_integer(text, *RANGES[field.type])
            if field.type in _FLOATS:
                return to_float(text)
            if field.type == FieldDescriptor.TYPE_BOOL:
                return to_bool(text)
            if field.enum_type is not None:
                return to_enum(text, field.enum_type)
            return self._text(text, field)
        except BadValueError as error:
            hint = value_hint(message, field.name, text) or error.hint
            complaint = f'"{field.name}" takes {error.takes}, found: {excerpt(text) or start}{hint}'
            raise self._error(complaint, start) from None

    def _text(self, first: str, field: FieldDescriptor) -> str | bytes:
        parts = [unquote(first)]
        while self._token.kind is TokenKind.STRING:
            parts.append(unquote(self._advance().text))
        content = b"".join(parts)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return content
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise BadValueError("text in UTF-8") from None

    def _advance(self) -> Token:
        """Move to the next token, but not past the end; return the one before."""
        token = self._token
        if token.kind is not TokenKind.END:
            self._token = next(self._tokens)
        return token

    def _accept(self, symbol: str) -> bool:
        """Skip the next token if it is ``symbol``; return whether it was."""
        if self._token.text != symbol:
            return False
        self._advance()
        return True

    def _after_equals_sign(self) -> str:
        """Return the value in ``name = value``, after a space; empty if there is none."""
        try:
            while self._accept("="):
                pass
            minus = "-" if self._accept("-") else ""
        except PrototxtError:  # of two mistakes the sign comes first and is reported
            return ""
        return "" if self._token.kind is TokenKind.END else f" {minus}{self._token}"

    def _origin(self, token: Token) -> Origin:
        return Origin(self._path, token.line, token.column)

    def _error(self, message: str, token: Token | None = None) -> PrototxtError:
        return PrototxtError(message, self._origin(token or self._token))


def _new_child(message: Message, field: FieldDescriptor) -> Message:
    """Return the message of ``field``, or a new last one of its list."""
    child: Message
    if is_repeated(field):
        child = getattr(message, field.name).add()
    else:
        child = getattr(message, field.name)
        child.SetInParent()  # marks it as set even if no field in it is
    return child
