"""Gathers blobs from several ranks on the rank that writes them, rank 0 of a communicator.

All ranks go through the same blobs in the same order, and send a blob in pieces. So no rank holds more than a piece
besides its own part, unless the file's format needs the whole blob at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.errors import FileError, WriteError
from bpt.config.precision import array_type
from bpt.engine.optim.rules import UpdateRule
from bpt.engine.optim.weight_slices import Elements
from bpt.graph.layer_graph import LayerNode, Param
from bpt.graph.layer_spec import Shape
from bpt.graph.part import BlobSlice, Part, holders
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.train.state.stored import runs_of_rows

PIECE = 2**22  # elements in a message: 16 MiB of float32

Floats = NDArray[np.floating[Any]]
"""Values in a run's precision; files convert them to float32."""

Index = tuple[slice, ...]
"""An index of an array; ``()`` is all of it."""

Diffs = Sequence[Tensor | None]
"""A diff for each parameter that a rank holds (``net.local_params``), in their order; ``None`` stands for zeros."""


class Gathered:
    """The values of a parameter blob (or of its moment or diff), which rank 0 gathers and reads once.

    Args:
        comm, parts: the ranks, and each rank's part of the net.
        owner: the parameter whose division among the ranks the values share.
        own: this rank's values; ``None``: zeros, or nothing if it does not hold the parameter.
        dtype: the type of the values on all ranks.
        shape: the shape of the blob, if it is not the owner's (share_mode PERMISSIVE).
    """

    def __init__(
        self,
        comm: Communicator,
        parts: Sequence[Part],
        owner: Param,
        own: Tensor | None,
        dtype: torch.dtype,
        shape: Shape | None = None,
    ) -> None:
        self.shape = owner.shape if shape is None else shape
        self._comm = comm
        self._own = own
        self._dtype = array_type(dtype)
        self._holders = holders(owner, parts)
        assert self.shape == owner.shape or self._holders == ((0, None),), "a slice in another shape"
        self._coming = self._exchange()

    def pieces(self) -> Iterator[tuple[Index, Floats]]:
        """Yield the remaining pieces with their indices on rank 0; other ranks send theirs."""
        return self._coming

    def array(self) -> Floats:
        """Return the whole blob on rank 0; it shares memory with the net's if that is on the CPU."""
        whole = None
        for index, piece in self._coming:
            if index == ():
                return piece
            if whole is None:
                whole = np.empty(self.shape, self._dtype)
            whole[index] = piece
        return np.zeros(self.shape, self._dtype) if whole is None else whole

    def drain(self) -> None:
        """Receive or send the remaining pieces, and drop them."""
        for _ in self._coming:
            pass

    def _exchange(self) -> Iterator[tuple[Index, Floats]]:
        for rank, part in self._holders:
            if rank == 0 and self._comm.rank == 0:
                yield (part.index(len(self.shape)) if part else ()), self._values(part)
            elif rank == self._comm.rank:
                for _, rows in self._places(part):
                    self._comm.Send(self._values(part, rows), 0)
            elif self._comm.rank == 0:
                for index, rows in self._places(part):
                    piece = np.empty(self._shape_of(part, rows), self._dtype)
                    self._comm.Recv(piece, rank)
                    yield index, piece

    def _places(self, part: BlobSlice | None) -> Iterator[tuple[Index, slice]]:
        """Yield the pieces of a rank's part: the index in the blob, and the rows of the part."""
        shape = part.shape(self.shape) if part else self.shape
        if not shape:
            yield (), slice(None)
            return
        offset = part.start if part and part.axis == 0 else 0
        columns = part.index(len(shape))[1:] if part and part.axis else ()
        for start, stop in runs_of_rows(shape, PIECE):
            yield (slice(offset + start, offset + stop), *columns), slice(start, stop)

    def _shape_of(self, part: BlobSlice | None, rows: slice) -> Shape:
        shape = part.shape(self.shape) if part else self.shape
        return (rows.stop - rows.start, *shape[1:]) if shape and rows != slice(None) else shape

    def _values(self, part: BlobSlice | None, rows: slice = slice(None)) -> Floats:
        shape = self._shape_of(part, rows)
        if self._own is None:
            return np.zeros(shape, self._dtype)
        return tensor_to_array(self._own[rows] if shape else self._own).reshape(shape)


class OfRank(Gathered):
    """Values of a single rank that are not part of a net."""

    def __init__(self, comm: Communicator, rank: int, own: Tensor | None, shape: Shape, dtype: torch.dtype) -> None:
        self.shape = shape
        self._comm = comm
        self._own = own
        self._dtype = array_type(dtype)
        self._holders = ((rank, None),)
        self._coming = self._exchange()


@dataclass(frozen=True)
class BlobValues:
    """A parameter blob of a net that is gathered on the rank that writes it."""

    data: Gathered
    diff: Gathered | None
    owner: bool  # False: the values belong to another layer
    learnable: bool


Layers = Sequence[tuple[LayerNode, Sequence[BlobValues]]]
"""Each layer of a net with its parameter blobs."""


def layers_of(net: Net, diffs: Diffs | None, comm: Communicator, parts: Sequence[Part]) -> Layers:
    """Return each layer of ``net`` with its parameter blobs; without diffs if ``diffs`` is ``None``."""
    diff_of = dict(zip((param.index for param in net.local_params), diffs or (), strict=bool(diffs)))

    def gathered(owner: Param, own: Tensor | None, shape: Shape) -> Gathered:
        return Gathered(comm, parts, owner, own, net.context.precision.master, shape)

    def blob(param: Param) -> BlobValues:
        owner = net.graph.params[param.owner]
        value = net.value(owner) if net.holds(owner) else None
        diff = gathered(owner, diff_of.get(owner.index), param.shape) if diffs is not None else None
        return BlobValues(gathered(owner, value, param.shape), diff, not param.shared, param.learnable)

    params = net.graph.params
    return [(node, [blob(params[index]) for index in node.params]) for node in net.graph.nodes]


def blobs_of(layers: Layers) -> Iterator[Gathered]:
    """Yield the blobs to gather for a file of weights, in the file's order."""
    for _, blobs in layers:
        for blob in blobs:
            yield blob.data
            if blob.diff is not None:
                yield blob.diff


def history_of(
    net: Net, history: Sequence[Tensor], moments: int, comm: Communicator, parts: Sequence[Part]
) -> list[Gathered]:
    """Return the ``history`` of an update rule of ``net``, whole and in Caffe's order (UpdateRule)."""
    place = {param.index: number for number, param in enumerate(net.local_params)}
    return [
        Gathered(
            comm,
            parts,
            param,
            history[moment * len(net.local_params) + place[param.index]] if param.index in place else None,
            net.context.precision.master,
        )
        for moment in range(moments)
        for param in net.graph.learnable
    ]


class SlicedBlob(Gathered):
    """A moment that ranks divide: rank 0 gets a blob from the ranks that have its elements, as a whole.

    Args:
        shape: of the blob.
        pieces: for each rank that sends some the slice of the blob that it holds, and its elements of that.
    """

    def __init__(
        self,
        comm: Communicator,
        shape: Shape,
        own: Tensor | None,
        pieces: Mapping[int, tuple[BlobSlice | None, Elements]],
        dtype: torch.dtype,
    ) -> None:
        self.shape = shape
        self._comm = comm
        self._own = own
        self._dtype = array_type(dtype)
        self._pieces_of = pieces
        self._coming = self._exchange()

    def _exchange(self) -> Iterator[tuple[Index, Floats]]:
        room: dict[BlobSlice | None, Floats] = {}
        for rank, (part, (start, stop)) in self._pieces_of.items():
            if rank == self._comm.rank:
                own = tensor_to_array(self._row()) if self._own is not None else np.empty(0, self._dtype)
            if self._comm.rank == 0:
                shape = part.shape(self.shape) if part else self.shape
                row = room.setdefault(part, np.empty(shape, self._dtype)).reshape(-1)[start:stop]
                if rank:
                    for piece in _runs(row):
                        self._comm.Recv(piece, rank)
                else:
                    row[...] = own
            elif rank == self._comm.rank:
                for piece in _runs(own):
                    self._comm.Send(piece, 0)
        if self._comm.rank == 0:
            for part, values in room.items():
                yield (part.index(len(self.shape)) if part else ()), values

    def _row(self) -> Tensor:
        assert self._own is not None
        return self._own.detach().reshape(-1)


def _runs(row: Floats) -> Iterator[Floats]:
    return (row[start : start + PIECE] for start in range(0, row.size, PIECE))


def sliced_history(net: Net, rule: UpdateRule, world: Communicator) -> list[Gathered]:
    """Return the history of ``rule``, as ``history_of`` does, from all ranks of ``world``; a collective call."""
    place = {param.index: number for number, param in enumerate(net.local_params)}
    own: dict[int, tuple[BlobSlice | None, Elements]] = {}
    for param, held in zip(net.local_params, rule.parameters, strict=True):
        own[param.index] = net.part.slice_of(param), held.elements or (0, held.value.numel())
    everybody: list[dict[int, tuple[BlobSlice | None, Elements]]] = world.allgather(own)
    pieces = {param.index: _tiles(param.index, everybody) for param in net.graph.learnable}
    return [
        SlicedBlob(
            world,
            param.shape,
            rule.history[moment * len(place) + place[param.index]] if param.index in place else None,
            pieces[param.index],
            net.context.precision.master,
        )
        for moment in range(rule.tensors_per_parameter)
        for param in net.graph.learnable
    ]


def _tiles(
    index: int, everybody: Sequence[Mapping[int, tuple[BlobSlice | None, Elements]]]
) -> dict[int, tuple[BlobSlice | None, Elements]]:
    """Return the ranks that together have the parameter ``index`` once, with what they have of it."""
    first: dict[tuple[BlobSlice | None, Elements], int] = {}
    for rank, own in enumerate(everybody):
        if index in own and own[index][1][1] > own[index][1][0]:
            first.setdefault(own[index], rank)
    return {rank: piece for piece, rank in first.items()}


def drain(blobs: Iterable[Gathered]) -> None:
    """Receive or send the remaining pieces of all blobs, and drop them."""
    for each in blobs:
        each.drain()


def write_together(comm: Communicator, blobs: Iterable[Gathered], write: Callable[[], None]) -> None:
    """Let rank 0 ``write``, which consumes ``blobs`` in their order, while the others send. A collective call.

    Raises:
        FileError, WriteError: the error of ``write``, which all ranks raise.
    """
    failure: FileError | WriteError | None = None
    if comm.rank == 0:
        try:
            write()
        except (FileError, WriteError) as error:
            failure = error
    drain(blobs)
    failure = comm.bcast(failure)
    if failure is not None:
        raise failure


def tensor_to_array(tensor: Tensor) -> Floats:
    """Return the values of ``tensor`` in row-major order, without a copy where possible."""
    array: Floats = tensor.detach().cpu().contiguous().numpy()
    return array
