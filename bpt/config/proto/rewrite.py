"""The conversion of files in old formats to today's, as by Caffe's three upgrade tools."""

from __future__ import annotations

import os
from collections.abc import Sequence

from google.protobuf.message import EncodeError, Message

from bpt.base.atomic import check_place, write_text
from bpt.base.errors import BptError, FileError, PrototxtError, RunError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_content, sniff, write_binary
from bpt.config.proto.bvlc_check import check_net
from bpt.config.proto.dialects import read_net
from bpt.config.proto.sources import read_net_text, read_solver_text
from bpt.config.proto.text import to_text
from bpt.config.proto.upgrade import Note, upgrade_net, upgrade_solver

FilePath = str | os.PathLike[str]


def rewrite_net_text(source: FilePath, target: FilePath) -> list[Note]:
    """Write the net at ``source`` to ``target`` in today's format, without its comments.

    All of the file is written, or nothing. A net that needs no upgrade is written too.

    Raises:
        PrototxtError: ``source`` cannot be read or upgraded.
        FileError: ``target`` has no place.
        WriteError: the file could not be written.
    """
    check_place(target)
    parsed = read_net_text(source)
    notes = upgrade_net(parsed.message, parsed.origins, parsed.path)
    _write_text(parsed.message, target)
    return notes


def rewrite_solver_text(source: FilePath, target: FilePath) -> list[Note]:
    """Write the solver at ``source``, with the nets inside it, to ``target``.

    Errors are those of ``rewrite_net_text``.
    """
    check_place(target)
    parsed = read_solver_text(source)
    notes = upgrade_solver(parsed.message, parsed.origins, parsed.path)
    _write_text(parsed.message, target)
    return notes


def rewrite_net_binary(source: FilePath, target: FilePath) -> list[Note]:
    """Write the weights at ``source`` (a binary NetParameter) to ``target`` in today's format.

    Blobs keep their shapes, also those of four axes. Fields of forks get the numbers of bpt's schema.

    Raises:
        FileError: as for ``rewrite_net_text``, or ``source`` cannot be read.
        WriteError: the file could not be written.
        RunError: a field of BVLC's schema differs from ``source`` and no note reports it; nothing is written.
    """
    check_place(target)
    if _is_hdf5(source):
        raise FileError(source, "is an HDF5 file, which has no old format: Caffe and bpt read it as it is")
    message, read, changed = read_net(source)
    try:
        notes = [*(Note(words, None) for words in read), *upgrade_net(message, {}, None)]
    except PrototxtError as error:
        raise FileError(os.fspath(source), str(error)) from None
    except UnicodeError:
        raise FileError(os.fspath(source), "has names or other texts that are not UTF-8") from None
    try:
        written = message.SerializePartialToString()
    except (EncodeError, ValueError):  # too large; writing it reports that
        write_binary(target, message)
        raise
    try:
        check_net(read_content(source, pb.NetParameter), written, changed)
    except BptError as error:
        raise RunError(f"{os.fspath(target)}: is not written: {error}") from None
    write_binary(target, message)
    return notes


def _is_hdf5(path: FilePath) -> bool:
    try:
        return sniff(path) == "hdf5"
    except (OSError, ValueError):  # reading it reports the error
        return False


def _write_text(message: Message, target: FilePath) -> None:
    write_text(target, to_text(message))


def report(done: str, source: FilePath, target: FilePath, notes: Sequence[Note]) -> tuple[list[str], int]:
    """Return the message of an upgrade tool, in Caffe's words, and its exit status.

    ``done`` names the written file, as in "NetParameter text proto". The status is 1 if something was dropped.
    """
    lines = [str(note) if note.place else f"{os.fspath(source)}: {note}" for note in notes]
    if not notes:
        lines.append(f"File already in latest proto format: {os.fspath(source)}")
    lossy = any(note.lossy for note in notes)
    if lossy:
        lines.append("Encountered one or more problems upgrading; see above.")
    lines.append(f"Wrote upgraded {done} to {os.fspath(target)}")
    return lines, int(lossy)
