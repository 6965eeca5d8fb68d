"""Records on their way from the main server, which reads the data, to the nodes that train them (``ship_data``).

Records go as they stand in the LMDB, in pieces of some MB, each two flat buffers. Which samples a node trains in which
order, and what is done to them, is decided there, by the same sampler and the same seed as where all nodes read the
data themselves: so the batches are the same. ``RecordCache`` is where a node keeps what it was sent.
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
    """Records for sending.

    Attributes:
        table: (n, 3) int64: of each record its index in the source, the bytes of its key, and those of its Datum.
        content: uint8: key and Datum of each, one after the other.
    """

    table: Integers
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Header:
    """The facts of a source that a node needs before it gets samples. They can be pickled.

    Attributes:
        path: of the source, for messages.
        samples: of the whole source.
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
        path: of the LMDB.
        sampler: of the layer that trains them.
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
        """Yield the records of ``runs``, positions in the order of epoch 0, read while one iterates.

        Within ``runs`` they come in the order of the LMDB, which is quicker to read.

        Args:
            size: a piece ends when it has so many bytes.

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
        """Give the LMDB back. The object is not used afterwards."""
        self._source.close()


def pack(indices: Iterable[int], records: Iterable[DatumRecord]) -> RecordChunk:
    """Return records with these indices in their source, in one chunk."""
    records = list(records)
    sizes = [(index, len(record.key), len(record.datum)) for index, record in zip(indices, records, strict=True)]
    content = bytearray().join(part for record in records for part in record)
    return RecordChunk(np.array(sizes, np.int64).reshape(-1, 3), np.frombuffer(content, np.uint8))


_numbers = itertools.count(1)
_caches: weakref.WeakValueDictionary[str, RecordCache] = weakref.WeakValueDictionary()  # by name


class RecordCache:
    """Records in a temporary file of this process, found by their index in the server's source; at first record 0.

    A Data layer reads them after ``redirect`` has put ``name`` in place of the source in its text. The file has no
    name of its own, so the disk gets its room back whatever ends the process. It is in the folder for temporary
    files, which the environment variable TMPDIR names, and needs room for all that is sent.

    Args:
        header: of the server's source.

    Attributes:
        name: stands for the cache in the text of a net, in this process.
        header: as given.

    Raises:
        WriteError: no temporary file can be written; so does ``append``.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.name = f"records of {header.path}, sent by rank 0 ({next(_numbers)})"
        self._places = np.zeros((header.samples, 3), np.int64)  # in the file, bytes of the key (0: not here), of Datum
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
        """Keep the records of ``chunk``; those that are here already may come again.

        May be called while another thread reads others.
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
        """Record ``index`` of the server's source; a DataError if it has not been sent."""
        at, key, datum = self._places[index].tolist()
        if not key:
            raise DataError(f"{self.header.path}: record {index} of {self.header.samples} was not sent to this node")
        content = os.pread(self._file.fileno(), key + datum, at)
        assert len(content) == key + datum, (index, len(content), key, datum)
        return DatumRecord(content[:key], content[key:])

    def redirect(self, layer: pb.LayerParameter) -> None:
        """Let the Data layer of this text, which is changed, read the cache, and the mean image that came with it."""
        layer.data_param.source = self.name
        layer.data_param.backend = pb.DataParameter.LMDB
        if self._mean and layer.transform_param.HasField("mean_file"):
            layer.transform_param.mean_file = self._mean.name

    def close(self) -> None:
        """Remove the files. No layer that reads the cache is used afterwards."""
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
    """The source whose records ``cache`` holds: it has all of them, but only those that were sent can be read.

    Args:
        channels: what encoded images are converted to, 1 or 3; ``None`` keeps what the file has.
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
        """Return whether the first record has to be decoded."""
        return is_encoded(self._cache.header.first.datum)

    def glance(self) -> Iterator[bytes]:
        """Yield nothing: the data sent are those that the server has."""
        yield from ()

    def close(self) -> None:
        """Do nothing: the cache outlives its readers, and its maker closes it."""


def record_cache_of(source: str) -> RecordCache | None:
    """Return the cache that the text of a net means by ``source``; ``None`` if it means a folder."""
    return _caches.get(source)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = tempfile.tempdir or "a temporary file"
        remedy = "set TMPDIR to a folder with room for the records that this node trains"
        raise WriteError(place, f"{error.strerror or error}; {remedy}") from None
