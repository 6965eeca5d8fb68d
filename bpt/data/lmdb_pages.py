"""Reads the file of an LMDB page by page with ``pread``.

LMDB's own library maps the file into memory: if the file is truncated during a run, SIGBUS kills the process without a
message, and a damaged page can cause any behaviour. This module copies and checks each page before it uses it, so any
change of the file gives an error message. It takes as long as the library (docs/data.md).

The format is that of LMDB 0.9 on 64-bit little-endian machines (``mdb.c``: MDB_page, MDB_node, MDB_db, MDB_meta). The
file has two meta pages, of which the one with the higher transaction counts, and a B+ tree.
"""

from __future__ import annotations

import os
import struct
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper; the last two are the pages of a large value
_NODE = struct.Struct("<HHHH")  # low and high half of size or child; flags, or upper part of child; size of the key
_META = struct.Struct("<IIQQ")  # magic, version, address, size of the map
_DB = struct.Struct("<IHHQQQQQ")  # pad or page size, flags, depth, branch, leaf and overflow pages, entries, root
_NUMBER = struct.Struct("<Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _LARGE, _META_PAGE, _DIRTY = 0x01, 0x02, 0x04, 0x08, 0x10
_ELSEWHERE, _DATABASE, _SEVERAL = 0x01, 0x02, 0x04  # flags of a node: its value is large, a database, several values
_DEEPEST = 32  # LMDB's own limit
_PAGE_SIZES = tuple(2**power for power in range(8, 17))
_TOGETHER = 16  # pages in one read
_WORTH_A_CALL = 2**15  # bytes from which a separate read is faster than copying them with the bytes before
_EMPTY = 2**64 - 1  # the root of a tree without pages


class NotLmdbError(ValueError):
    """The file is not a readable LMDB; the message says why, without the path."""


class DamagedError(ValueError):
    """The file is damaged or truncated; the message says where, without the path."""


class Meta(NamedTuple):
    """The content of a meta page; pages and bytes are counted as in LMDB's ``stat``."""

    page_size: int
    depth: int
    leaf_pages: int
    large_pages: int
    entries: int
    root: int
    last_page: int
    transaction: int

    @property
    def size(self) -> int:
        """Smallest size of the file in bytes."""
        return (self.last_page + 1) * self.page_size


class LmdbEntry(NamedTuple):
    """A record in a leaf; ``large`` is the first page of a large value, which has its own pages, or 0."""

    key: bytes
    value: bytes
    large: int
    size: int


Leaf = list[LmdbEntry]


class LmdbFile:
    """An LMDB in the state in which it was opened.

    Any thread may call any method at any time.

    Args:
        path: the path of ``data.mdb``.

    Attributes:
        meta: the newest meta page at the time of opening.

    Raises:
        NotLmdbError: the file is not an LMDB, is that of another kind of machine, or lacks a page.
        OSError: the file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.close = weakref.finalize(self, os.close, self._descriptor)
        """Closes the file; deleting the object does the same, and a second call has no effect."""
        self.meta = self._newest()
        have = os.fstat(self._descriptor).st_size
        if have < self.meta.size:
            raise NotLmdbError(f"its data.mdb is truncated: {have} bytes of {self.meta.size}; copy or make it again")

    def leaves(self, backwards: bool = False) -> Iterator[Leaf]:
        """Yield the records of each leaf, in the order of their keys; large values are not read.

        Raises:
            DamagedError: a page is invalid, or the number of records differs from that in the meta page.
            OSError: the file cannot be read.
        """
        left = self.meta.entries
        for page in self._pages(backwards=backwards):
            leaf = self._entries(page)
            left -= len(leaf)
            if left < 0:
                break
            yield leaf[::-1] if backwards else leaf
        if left:
            raise DamagedError(f"it has {'more' if left < 0 else 'fewer'} records than its meta page says")

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield the page number and the number of records of each leaf, in order; raise errors as ``leaves`` does."""
        left = self.meta.entries
        for page in self._pages():
            count = self._count(page)
            left -= count
            if left < 0:
                break
            yield _NUMBER.unpack_from(page)[0], count
        if left:
            raise DamagedError(f"it has {'more' if left < 0 else 'fewer'} records than its meta page says")

    def entry(self, number: int, index: int) -> LmdbEntry:
        """Return record ``index`` of the leaf in page ``number``; raise errors as ``leaves`` does."""
        page = self._page(number, _LEAF)
        if index >= self._count(page):
            raise self._damaged(page)
        (at,) = struct.unpack_from("<H", page, _PAGE.size + 2 * index)
        return self._entry(page, at)

    def first_from(self, key: bytes) -> LmdbEntry | None:
        """Return the first record whose key is not before ``key``, or ``None`` if there is none."""
        for page in self._pages(key):
            leaf = self._entries(page)
            at = bisect_left([entry.key for entry in leaf], key)
            if at < len(leaf):
                return leaf[at]
        return None

    def value(self, entry: LmdbEntry) -> bytes:
        """Return the value of a record; raise errors as ``leaves`` does."""
        if not entry.large:
            return entry.value
        pages = self._pages_of(entry)
        if entry.large + pages > self.meta.last_page + 1:
            raise DamagedError(f"page {entry.large} has a value that reaches beyond the last page")
        together = entry.size < _WORTH_A_CALL
        content = self._read(entry.large, _PAGE.size + (entry.size if together else 0))
        number, _, flags, low, high = _PAGE.unpack_from(content)
        if number != entry.large or flags != _LARGE or low + (high << 16) < pages:
            raise DamagedError(f"page {entry.large} should be a large value, but is not")
        return content[_PAGE.size :] if together else self._read(entry.large, entry.size, _PAGE.size)

    def pages_of(self, entry: LmdbEntry) -> range:
        """Return the pages of a record's large value; an empty range for a value in the leaf."""
        return range(entry.large, entry.large + self._pages_of(entry)) if entry.large else range(0)

    def check_unchanged(self) -> None:
        """Raise a DamagedError if the file has changed since it was opened.

        It has changed if it is shorter than before, or if no meta page has the transaction that was the newest. LMDB
        itself does not overwrite pages of the last two transactions.
        """
        try:
            if os.fstat(self._descriptor).st_size < self.meta.size:
                raise self._cut()
            found = [self._meta(at) for at in (0, self.meta.page_size)]
        except NotLmdbError as error:
            raise DamagedError(f"while it was read its data.mdb changed: it {error}") from None
        if self.meta not in found:
            raise DamagedError("while it was read its data.mdb was written to, or another one was copied over it")

    def _cut(self) -> DamagedError:
        return DamagedError(f"while it was read its data.mdb was cut: it had {self.meta.size} bytes")

    def _pages_of(self, entry: LmdbEntry) -> int:
        return -(-(_PAGE.size + entry.size) // self.meta.page_size)

    def _pages(self, key: bytes | None = None, backwards: bool = False) -> Iterator[bytes]:
        """Yield the pages of leaves, from the one that has or would have ``key`` on."""
        if self.meta.depth:
            yield from self._below(self.meta.root, self.meta.depth, key, backwards)

    def _below(self, number: int, depth: int, key: bytes | None, backwards: bool) -> Iterator[bytes]:
        if depth == 1:
            yield self._page(number, _LEAF)
            return
        page = self._page(number, _BRANCH)
        children = self._children(page)
        start = 0
        if key is not None:  # a child has the keys from its own key on; the first child has no key
            start = bisect_right([child[0] for child in children[1:]], key)
        if depth == 2 and key is None and not backwards:
            yield from self._leaves_of([number for _, number in children])
            return
        for at in reversed(range(len(children))) if backwards else range(start, len(children)):
            yield from self._below(children[at][1], depth - 1, key if at == start else None, backwards)

    def _leaves_of(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yield these leaves; one read gets several leaves whose pages follow one another."""
        size, at = self.meta.page_size, 0
        while at < len(numbers):
            run = 1
            while run < _TOGETHER and at + run < len(numbers) and numbers[at + run] == numbers[at] + run:
                run += 1
            if run == 1 or numbers[at] + run > self.meta.last_page + 1:
                yield self._page(numbers[at], _LEAF)
                run = 1
            else:
                content = self._read(numbers[at], run * size)
                for index in range(run):
                    yield self._checked(content[index * size : (index + 1) * size], numbers[at] + index, _LEAF)
            at += run

    def _children(self, page: bytes) -> list[tuple[bytes, int]]:
        found = []
        for at in self._pointers(page):
            low, high, top, size = _NODE.unpack_from(page, at)
            end = at + _NODE.size + size
            if end > len(page):
                raise self._damaged(page)
            found.append((page[at + _NODE.size : end], low | high << 16 | top << 32))
        return found

    def _entries(self, page: bytes) -> Leaf:
        return [self._entry(page, at) for at in self._pointers(page)]

    def _entry(self, page: bytes, at: int) -> LmdbEntry:
        """Return the record whose node is at offset ``at`` of its leaf."""
        if at + 8 > len(page):
            raise self._damaged(page)
        low, high, flags, key_size = _NODE.unpack_from(page, at)
        start = at + 8 + key_size
        size = low | high << 16
        if not flags:
            end = start + size
            if end > len(page):
                raise self._damaged(page)
            return LmdbEntry(page[at + 8 : start], page[start:end], 0, size)
        if flags & (_DATABASE | _SEVERAL):
            raise DamagedError("it has nested databases or several values for a key, so it is not a data set")
        if flags != _ELSEWHERE or start + _NUMBER.size > len(page):
            raise self._damaged(page)
        (large,) = _NUMBER.unpack_from(page, start)
        if not 1 < large <= self.meta.last_page:
            raise self._damaged(page)
        return LmdbEntry(page[at + 8 : start], b"", large, size)

    def _count(self, page: bytes) -> int:
        lower, upper = struct.unpack_from("<HH", page, 12)
        if not _PAGE.size < lower <= upper <= len(page) or lower % 2:
            raise self._damaged(page)
        return int(lower - _PAGE.size) >> 1

    def _pointers(self, page: bytes) -> tuple[int, ...]:
        """Return the offsets of a page's nodes."""
        count = self._count(page)
        pointers = struct.unpack_from(f"<{count}H", page, _PAGE.size)
        if min(pointers) < _PAGE.size + 2 * count or max(pointers) + _NODE.size > len(page):
            raise self._damaged(page)
        return pointers

    def _page(self, number: int, kind: int) -> bytes:
        """Return the page ``number``, which is a branch or a leaf."""
        if not 1 < number <= self.meta.last_page:
            raise DamagedError(f"it refers to page {number}, which does not exist")
        return self._checked(self._read(number, self.meta.page_size), number, kind)

    def _checked(self, page: bytes, number: int, kind: int) -> bytes:
        found, _, flags, _, _ = _PAGE.unpack_from(page)
        if found != number or flags & ~_DIRTY != kind:
            raise DamagedError(f"page {number} should be a {'leaf' if kind == _LEAF else 'branch'}, but is not")
        return page

    def _read(self, number: int, size: int, skip: int = 0) -> bytes:
        start = number * self.meta.page_size + skip
        content = os.pread(self._descriptor, size, start)
        while len(content) < size:  # a read returns at most 2 GB, and a signal may end it early
            more = os.pread(self._descriptor, size - len(content), start + len(content))
            if not more:
                raise self._cut()
            content += more
        return content

    def _newest(self) -> Meta:
        first = self._meta(0)
        second = self._meta(first.page_size)
        if second.page_size != first.page_size:
            raise NotLmdbError("is an LMDB whose two meta pages contradict each other; copy or make it again")
        return max(first, second, key=lambda meta: meta.transaction)

    def _meta(self, at: int) -> Meta:
        content = os.pread(self._descriptor, _PAGE.size + _META.size + 2 * _DB.size + 2 * _NUMBER.size, at)
        try:
            number, _, flags, _, _ = _PAGE.unpack_from(content)
            magic, version, _, _ = _META.unpack_from(content, _PAGE.size)
            free = _DB.unpack_from(content, _PAGE.size + _META.size)
            main = _DB.unpack_from(content, _PAGE.size + _META.size + _DB.size)
            last_page, transaction = struct.unpack_from("<QQ", content, _PAGE.size + _META.size + 2 * _DB.size)
        except struct.error:
            raise NotLmdbError("is not a readable LMDB: its data.mdb ends in its first pages") from None
        if magic != _MAGIC or not flags & _META_PAGE:
            raise NotLmdbError("is not a readable LMDB: File is not an LMDB file")
        if version != _VERSION:
            raise NotLmdbError(f"is an LMDB of version {version} of the format; bpt reads version {_VERSION}")
        page_size, (_, _, depth, _, leaves, large, entries, root) = free[0], main
        if page_size not in _PAGE_SIZES or number != (at > 0) or depth > _DEEPEST or (root == _EMPTY) != (not depth):
            raise NotLmdbError("is a damaged LMDB: a meta page is invalid; copy or make it again")
        return Meta(page_size, depth, leaves, large, entries, root, last_page, transaction)

    def _damaged(self, page: bytes) -> DamagedError:
        return DamagedError(f"page {_NUMBER.unpack_from(page)[0]} is damaged")
