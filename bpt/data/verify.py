"""Checks LMDBs and HDF5 files by their checksums, and finds the records that damage has hit.

Files without checksums, from Caffe or an old bpt, are read completely; then only unreadable records can be found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from bpt.base.errors import BptError, DataError
from bpt.base.user_files import refuse_file
from bpt.data.annotated import decode_annotated, is_annotated
from bpt.data.checksums import PIECE, Tell, damaged_pieces
from bpt.data.datum import decode_datum, is_encoded
from bpt.data.hdf5_file import import_h5py
from bpt.data.lmdb_file import DatumRecord, open_lmdb
from bpt.data.lmdb_pages import DamagedError, LmdbFile
from bpt.data.prefetch import how_many

_MOST = 5  # records, pages or rows that a message names
_DECODED_AT_ONCE = 256


@dataclass(frozen=True)
class Verified:
    """The findings in a file.

    Attributes:
        path: the path as the user or a text wrote it.
        amount: the amount of data in words.
        has_checksums: whether checksums could show if the data have changed since they were written.
        damage: the damage in words; empty: there is none.
    """

    path: str
    amount: str
    has_checksums: bool
    damage: tuple[str, ...] = ()


def verify_lmdb(path: str, tell: Tell = lambda size: None) -> Verified:
    """Check all pages of the LMDB in the folder ``path`` or, without checksums, all records; never raise an error."""
    try:
        damaged = damaged_pieces(os.path.join(path, "data.mdb"), tell)
        file = open_lmdb(path)
    except (BptError, OSError) as error:
        return Verified(path, "", True, (_reason(path, error),))
    try:
        amount = f"{file.meta.entries} record{'s' * (file.meta.entries != 1)}"
        if damaged is None:
            return Verified(path, amount, False, tuple(_unreadable(file)))
        if not damaged and _holds_images(file):  # image files may have been damaged before the LMDB was written
            return Verified(path, amount, True, tuple(_unreadable(file)))
        return Verified(path, amount, True, tuple(_records_in(file, damaged)) if damaged else ())
    finally:
        file.close()


def _records(file: LmdbFile) -> Iterator[DatumRecord]:
    return (DatumRecord(entry.key, file.value(entry)) for leaf in file.leaves() for entry in leaf)


def _decoder_of(file: LmdbFile) -> Callable[[bytes], object]:
    """Return the decoder of the records: that of AnnotatedDatum if the first one has its form, else that of Datum."""
    first = next(_records(file), None)
    return decode_annotated if first and is_annotated(first.datum) else decode_datum


def _holds_images(file: LmdbFile) -> bool:
    """Return whether the first record is an image file."""
    try:
        first = next(_records(file), None)
    except (DamagedError, OSError):
        return False
    return first is not None and (is_annotated(first.datum) or is_encoded(first.datum))


def _unreadable(file: LmdbFile) -> Iterator[str]:
    """Yield the first records that cannot be read or decoded; threads decode them."""

    def bad() -> Iterator[str]:
        try:
            decode = _decoder_of(file)
            records = _records(file)
            with ThreadPoolExecutor(how_many(0), "bpt verify") as pool:
                while block := list(islice(records, _DECODED_AT_ONCE)):
                    yield from filter(None, pool.map(partial(_wrong_with, decode), block))
        except (DamagedError, OSError) as error:
            yield str(error)

    yield from _first(bad())


def _wrong_with(decode: Callable[[bytes], object], record: DatumRecord) -> str:
    """Return the error of a record in words; "" if there is none."""
    try:
        decode(record.datum)
    except DataError as error:
        return f'record "{record.key.decode("ascii", "backslashreplace")}": {error}'
    return ""


def _records_in(file: LmdbFile, damaged: tuple[int, ...]) -> Iterator[str]:
    """Yield the records in damaged pieces of the file, and then the damaged pages without records."""
    # A piece is a page, unless pages have another size.
    pages = {piece * PIECE // file.meta.page_size for piece in damaged} | {
        ((piece + 1) * PIECE - 1) // file.meta.page_size for piece in damaged
    }
    found: list[str] = []
    explained: set[int] = set()
    broken = ""
    try:
        for number, count in file.places():
            for index in range(count):
                entry = file.entry(number, index)
                hit = pages.intersection((number, *file.pages_of(entry)))
                if hit:
                    explained |= hit
                    found.append(f'record "{entry.key.decode("ascii", "backslashreplace")}"')
    except (DamagedError, OSError) as error:
        broken = str(error)
    yield from _first(found)
    if rest := sorted(pages - explained):
        yield f"page{'s' * (len(rest) > 1)} {_runs(rest)}, without readable records"
    if broken:
        yield broken


def verify_hdf5(path: str, tell: Tell = lambda size: None) -> Verified:
    """Check all bytes of the HDF5 file at ``path`` or, without checksums, all rows; never raise an error."""
    try:
        damaged = damaged_pieces(path, tell)
        with import_h5py().File(path, "r", locking=False) as file:
            datasets = _datasets(file)
            amount = ", ".join(f'{len(each) if each.ndim else 1} rows of "{each.name[1:]}"' for each in datasets)
            if damaged is None:
                for each in datasets:
                    for start in range(0, len(each) if each.ndim else 0, _ROWS):
                        each[start : start + _ROWS]
                return Verified(path, amount, False)
            places = [(piece * PIECE, (piece + 1) * PIECE) for piece in damaged]
            return Verified(path, amount, True, tuple(_rows_in(datasets, places)) if places else ())
    except BptError as error:
        return Verified(path, "", True, (_reason(path, error),))
    # h5py raises any of these for damaged files.
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError, AttributeError) as error:
        why = refuse_file(path, "an HDF5 file", f"is not an HDF5 file, or a damaged one: {_line(error)}")
        return Verified(path, "", True, (why.reason,))


_ROWS = 256  # rows in one read


def _datasets(file: Any) -> list[Any]:
    found: list[Any] = []
    library = import_h5py()
    file.visititems(lambda name, each: found.append(each) if isinstance(each, library.Dataset) else None)
    return found


def _rows_in(datasets: Iterable[Any], places: list[tuple[int, int]]) -> Iterator[str]:
    """Yield the rows in damaged ``places``, and then the damaged bytes without rows."""
    found: list[str] = []
    explained: set[int] = set()
    for each in datasets:
        for start, size, first, last in _blocks(each):
            hit = [at for at, (begin, end) in enumerate(places) if begin < start + size and start < end]
            explained.update(hit)
            if hit:
                found.append(f'rows {first} to {last} of dataset "{each.name[1:]}"')
    yield from _first(found)
    if rest := [place for at, place in enumerate(places) if at not in explained]:
        yield f"bytes {rest[0][0]} to {rest[-1][1] - 1}, without rows"


def _blocks(dataset: Any) -> Iterator[tuple[int, int, int, int]]:
    """Yield the blocks of a dataset in its file: first byte, number of bytes, first and last row."""
    if not dataset.ndim or not len(dataset):
        return
    if dataset.chunks is None:
        start = dataset.id.get_offset()
        if start is None:
            return
        row = dataset.id.get_storage_size() // len(dataset)
        for first in range(0, len(dataset), max(1, PIECE // max(row, 1))):
            last = min(len(dataset), first + max(1, PIECE // max(row, 1))) - 1
            yield start + first * row, (last - first + 1) * row, first, last
        return
    for index in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(index)
        first = info.chunk_offset[0]
        yield info.byte_offset, info.size, first, min(len(dataset), first + dataset.chunks[0]) - 1


def _first(names: Iterable[str]) -> Iterator[str]:
    names = iter(names)
    yield from islice(names, _MOST)
    if more := sum(1 for _ in names):
        yield f"and {more} more"


def _runs(numbers: list[int]) -> str:
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(shown[:_MOST]) + (f" and {len(shown) - _MOST} more" if len(shown) > _MOST else "")


def _reason(path: str, error: Exception) -> str:
    text = str(error)
    for prefix in (os.path.join(path, "data.mdb"), path):
        text = text.removeprefix(f"{prefix}: ")
    return text


def _line(error: Exception) -> str:
    return " ".join(str(error).strip("'\"").split()) or type(error).__name__


def size_of(path: str) -> int:
    """Return the bytes of the LMDB or file at ``path`` that a check reads; 0 if it is missing."""
    place = Path(path, "data.mdb") if os.path.isdir(path) else Path(path)
    try:
        return place.stat().st_size
    except OSError:
        return 0
