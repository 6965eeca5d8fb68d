"""The flag ``--set 'TEXT'``: snippets of text format that override the fields of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message

from bpt.base.errors import excerpt
from bpt.base.origin import FLAG, FieldPath, Origin
from bpt.config.proto.fields import fields_of, is_message, is_repeated
from bpt.config.proto.parse import check_complete, parse_text


def apply_set(
    message: Message, snippets: Sequence[str], origins: dict[FieldPath, Origin] | None = None, prefix: str = FLAG
) -> None:
    """Apply ``snippets`` to ``message``, one after the other, and to ``origins`` too if given.

    A single field replaces the one in ``message``. A message is merged into it, field by field. A list replaces the
    whole list: ``test_iter: 10`` means one test of 10 batches, not one more. ``test_iter: []`` empties it.

    Args:
        prefix: what messages show before the text of a snippet.

    Raises:
        PrototxtError: a snippet is wrong, or a required field is missing once all are applied. The message shows
            ``--set 'TEXT'`` with a mark under the place. If a snippet is wrong, ``message`` is unchanged.
    """
    places = {} if origins is None else origins
    patches = [parse_text(snippet, type(message), _name(snippet, prefix), partial=True) for snippet in snippets]
    for patch in patches:
        _lay_over(message, patch.message, (), patch.origins, places)
    if patches:
        check_complete(message, places, patches[-1].path)


def _name(snippet: str, prefix: str) -> str:
    return f"{prefix}{excerpt(snippet)}'"


def _lay_over(
    target: Message,
    patch: Message,
    where: FieldPath,
    written: Mapping[FieldPath, Origin],
    places: dict[FieldPath, Origin],
) -> None:
    """Merge ``patch``, whose fields ``written`` lists, into ``target``; both are at ``where``."""
    for field in fields_of(patch):
        path = (*where, field.name)
        if path not in written:
            continue
        value = getattr(patch, field.name)
        if is_repeated(field):
            target.ClearField(field.name)
            getattr(target, field.name).extend(value)
            _replace(places, path, written)
        elif is_message(field):
            child = getattr(target, field.name)
            child.SetInParent()
            places.setdefault(path, written[path])
            _lay_over(child, value, path, written, places)
        else:
            setattr(target, field.name, value)
            places[path] = written[path]


def _replace(places: dict[FieldPath, Origin], path: FieldPath, written: Mapping[FieldPath, Origin]) -> None:
    """Replace all places in the list at ``path`` by those that are ``written``."""
    for old in [key for key in places if key[: len(path)] == path]:
        del places[old]
    places.update((key, origin) for key, origin in written.items() if key[: len(path)] == path)
