"""Sends records from the main server, which reads the data, to the nodes that train them (``ship_data``).

Records travel unchanged, in chunks of some MB, each of which has two flat buffers. Each node decides the order and the
transforms of its samples, with the same sampler and seed as if it read the data itself, so the batches are the same.
``RecordCache`` keeps the records that a node has received.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError, FileError, WriteError
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.datum import is_encoded
from bpt.data.lmdb_file import DatumRecord, LmdbSource
from bpt.data.sample_partition import Run
from bpt.data.sampler import Integers, Sampler
from bpt.data.source import Sample

PIECE = 2**23  # bytes


class RecordChunk(NamedTuple):
    """Several records in a form that can be sent.

    Attributes:
        table: (n, 3) int64: index in the source, bytes of the key, and bytes of the Datum of each record.
        content: uint8: key and Datum of all records, one after the other.
    """

    table: Integers
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Header:
    """The properties of a source that a node needs before it gets samples; it can be pickled.

    Attributes:
        path: path of the source, for messages.
        samples: number of samples of the whole source.
        first: record 0, whose shape is that of the net's data.
        mean: content of the mean file; empty: there is none.
    """

    path: str
    samples: int
    first: DatumRecord
    mean: bytes = b""


class RecordStream:
    """The records of an LMDB, for nodes that cannot reach it.

    Args:
        path: path of the LMDB.
        sampler: the sampler of the layer that trains them.
        mean_file: path of the mean image that the layer subtracts; "": none.

    Raises:
        FileError: the LMDB or the mean file cannot be read.
    """

    def __init__(self, path: str, sampler: Sampler, mean_file: str = "") -> None:
        self._order = sampler.order(0)
        self._source = LmdbSource(path, random_access=True)
        try:
            mean = read_bytes(mean_file) if mean_file else b""
        except UnreadableError as error:
            self.close()
            raise FileError(mean_file, str(error)) from None
        self.header = Header(path, len(self._source), self._source.record(0), mean)

    def pieces(self, runs: Iterable[Run], size: int = PIECE) -> Iterator[RecordChunk]:
        """Yield the records of ``runs``, which are positions in the order of epoch 0; each chunk is read on demand.

        Records are in the order of the LMDB, which is faster to read.

        Args:
            size: number of bytes at which a chunk ends.

        Raises:
            DataError: a record cannot be read.
        """
        indices = np.sort(np.concatenate([self._order[start:stop] for start, stop in runs] or [self._order[:0]]))
        chosen: list[int] = []
        records: list[DatumRecord] = []
        gathered = 0
        for index in indices.tolist():
            chosen.append(index)
            records.append(self._source.record(index))
            gathered += len(records[-1].datum)
            if gathered >= size:
                yield pack(chosen, records)
                chosen, records, gathered = [], [], 0
        if records:
            yield pack(chosen, records)

    def close(self) -> None:
        """Close the LMDB; the object cannot be used afterwards."""
        self._source.close()


def pack(indices: Iterable[int], records: Iterable[DatumRecord]) -> RecordChunk:
    """Return a chunk with ``records``, whose indices in the source are ``indices``."""
    records = list(records)
    sizes = [(index, len(record.key), len(record.datum)) for index, record in zip(indices, records, strict=True)]
    content = bytearray().join(part for record in records for part in record)
    return RecordChunk(np.array(sizes, np.int64).reshape(-1, 3), np.frombuffer(content, np.uint8))


_numbers = itertools.count(1)
_caches: weakref.WeakValueDictionary[str, RecordCache] = weakref.WeakValueDictionary()  # by name


class RecordCache:
    """Records in a temporary file, found by their index in the server's source; at first it has only record 0.

    A Data layer reads the cache after ``redirect`` has replaced the source in its text by ``name``. The file has no
    name, so its disk space is freed however the process ends. It is in the folder for temporary files, which the
    environment variable TMPDIR names, and needs space for all records that are sent.

    Args:
        header: the header of the server's source.

    Attributes:
        name: the source in a net's text that means this cache, in this process.
        header: the argument ``header``.

    Raises:
        WriteError: no temporary file can be written; ``append`` raises it, too.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.name = f"records of {header.path}, sent by rank 0 ({next(_numbers)})"
        self._places = np.zeros((header.samples, 3), np.int64)  # offset in the file, bytes of key (0: absent) and Datum
        self._end = 0
        self._mean: IO[bytes] | None = None
        with _writing():
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        try:
            self.append(pack([0], [header.first]))
            self._keep_mean()
        except BaseException:
            self.close()
            raise
        _caches[self.name] = self

    def append(self, chunk: RecordChunk) -> None:
        """Add the records of ``chunk`` to the cache; a record may be added again.

        Another thread may read other records meanwhile.
        """
        view = chunk.content.data
        end = self._end
        with _writing():
            while view:
                written = os.pwrite(self._file.fileno(), view, end)
                view, end = view[written:], end + written
        index, sizes = chunk.table[:, 0], chunk.table[:, 1:]
        assert end - self._end == sizes.sum(), (end - self._end, sizes.sum())
        ends = np.cumsum(sizes.sum(axis=1)) + self._end
        self._places[index] = np.column_stack((ends - sizes.sum(axis=1), sizes))
        self._end = end

    def record(self, index: int) -> DatumRecord:
        """Return record ``index`` of the server's source; raise a DataError if it has not been sent."""
        at, key, datum = self._places[index].tolist()
        if not key:
            raise DataError(f"{self.header.path}: record {index} of {self.header.samples} was not sent to this node")
        content = os.pread(self._file.fileno(), key + datum, at)
        assert len(content) == key + datum, (index, len(content), key, datum)
        return DatumRecord(content[:key], content[key:])

    def redirect(self, layer: pb.LayerParameter) -> None:
        """Change the text of a Data layer so that the layer reads the cache, and the mean image of the header."""
        layer.data_param.source = self.name
        layer.data_param.backend = pb.DataParameter.LMDB
        if self._mean and layer.transform_param.HasField("mean_file"):
            layer.transform_param.mean_file = self._mean.name

    def close(self) -> None:
        """Remove the files; layers that read the cache cannot be used afterwards."""
        _caches.pop(self.name, None)
        self._file.close()
        if self._mean:
            self._mean.close()
            self._mean = None

    def __enter__(self) -> RecordCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep_mean(self) -> None:
        if self.header.mean:
            with _writing():
                self._mean = tempfile.NamedTemporaryFile(prefix="bpt_mean_")  # noqa: SIM115
                self._mean.write(self.header.mean)
                self._mean.flush()


class RecordCacheSource:
    """The server's source with the records of ``cache``: it has the full length, but only sent records are readable.

    Args:
        channels: number of channels to which encoded images are converted, 1 or 3; ``None`` keeps the file's.
    """

    def __init__(self, cache: RecordCache, channels: int | None = None) -> None:
        self.path = cache.header.path
        self._cache = cache
        self._channels = channels

    def __len__(self) -> int:
        return self._cache.header.samples

    def read(self, index: int) -> Sample:
        return self._cache.record(index).sample(self.path, self._channels)

    def begin(self, index: int) -> Callable[[], Sample]:
        return partial(self._cache.record(index).sample, self.path, self._channels)

    def is_encoded(self) -> bool:
        """Return whether the first record has an image file."""
        return is_encoded(self._cache.header.first.datum)

    def glance(self) -> Iterator[bytes]:
        """Yield nothing: the records are the server's, so there is no need to compare them."""
        yield from ()

    def close(self) -> None:
        """Do nothing: the creator of the cache closes it."""


def record_cache_of(source: str) -> RecordCache | None:
    """Return the cache whose name is ``source`` in a net's text, or ``None`` if ``source`` is a folder."""
    return _caches.get(source)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = tempfile.tempdir or "a temporary file"
        remedy = "set TMPDIR to a folder with room for the records that this node trains"
        raise WriteError(place, f"{error.strerror or error}; {remedy}") from None
