"""Paths in the fields of nets and solvers that were written on Windows, changed by ``native_paths``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from google.protobuf.message import Message

from bpt.base.native_paths import native_path
from bpt.config.proto.fields import is_message, is_repeated

PATHS = frozenset(
    (
        "source", "mean_file", "root_folder", "label_map_file", "name_size_file", "output_directory", "video_file",
        "net", "train_net", "test_net", "weights", "profile", "choice",
    )
)  # fmt: skip
"""The fields of nets and solvers that name a file or folder to be read."""


def use_native_paths(message: Message, written_in: str) -> list[str]:
    """Change the paths of a net or a solver that exist only with ``/``; return the changes, for the log.

    Args:
        written_in: the file of the text; files are also searched next to it.
    """
    changed: dict[str, None] = {}
    _change(message, ("", os.path.dirname(written_in)), changed)
    return list(changed)


def _change(message: Message, folders: Sequence[str], changed: dict[str, None]) -> None:
    for field, value in message.ListFields():
        if is_message(field):
            for each in value if is_repeated(field) else (value,):
                _change(each, folders, changed)
        elif field.name in PATHS and field.cpp_type == field.CPPTYPE_STRING:
            values = list(value) if is_repeated(field) else [value]
            native = [native_path(each, folders) for each in values]
            if native == values:
                continue
            changed.update(
                {f'{field.name} "{a}" is read as "{b}"': None for a, b in zip(values, native, strict=True) if a != b}
            )
            if is_repeated(field):
                getattr(message, field.name)[:] = native
            else:
                setattr(message, field.name, native[0])
