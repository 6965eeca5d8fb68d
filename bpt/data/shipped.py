"""Records on their way from the main server, which reads the data, to the nodes that train them (``ship_data``).

This is the server's side; ``shipped_spool`` is the node's. Records go as they stand in the LMDB, in pieces of some MB,
each two flat buffers. Which samples a node trains in which order, and what is done to them, is decided there, by the
same sampler and the same seed as where all nodes read the data themselves: so the batches are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.balance.allocation import Run
from bpt.data.lmdb_source import LmdbSource, Record
from bpt.data.sampler import Integers, Sampler
from bpt.errors import FileError
from bpt.proto.files import UnreadableError, read_bytes

PIECE = 2**23  # bytes


class Parcel(NamedTuple):
    """Records for sending.

    Attributes:
        table: (n, 3) int64: of each record its index in the source, the bytes of its key, and those of its Datum.
        content: uint8: key and Datum of each, one after the other.
    """

    table: Integers
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Header:
    """What a node must know of a source before any sample is allocated to it. Can be pickled.

    Attributes:
        path: of the source, for messages.
        samples: of the whole source.
        first: record 0, whose shape is that of the net's data.
        mean: content of the mean file; empty: there is none.
    """

    path: str
    samples: int
    first: Record
    mean: bytes = b""


class Shipment:
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

    def pieces(self, runs: Iterable[Run], size: int = PIECE) -> Iterator[Parcel]:
        """The records of ``runs``, positions in the order of epoch 0, read while one iterates.

        Within ``runs`` they come in the order of the LMDB, which is quicker to read.

        Args:
            size: a piece ends when it has so many bytes.

        Raises:
            DataError: a record cannot be read.
        """
        indices = np.sort(np.concatenate([self._order[start:stop] for start, stop in runs] or [self._order[:0]]))
        chosen: list[int] = []
        records: list[Record] = []
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


def pack(indices: Iterable[int], records: Iterable[Record]) -> Parcel:
    """Records with these indices in their source, in one parcel."""
    records = list(records)
    sizes = [(index, len(record.key), len(record.datum)) for index, record in zip(indices, records, strict=True)]
    content = bytearray().join(part for record in records for part in record)
    return Parcel(np.array(sizes, np.int64).reshape(-1, 3), np.frombuffer(content, np.uint8))


def unpack(parcel: Parcel) -> Iterator[tuple[int, Record]]:
    """The records of a parcel with their indices."""
    content = parcel.content.tobytes()
    at = 0
    for index, key, datum in parcel.table.tolist():
        end = at + key + datum
        yield index, Record(content[at : at + key], content[at + key : end])
        at = end
