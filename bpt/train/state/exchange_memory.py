"""The memory of all ranks' exchanges in a snapshot, such as a codec's residuals, which no other rank has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import array_to_blob, blob_to_array
from bpt.system.comm.base import Communicator
from bpt.train.state.blob_gathering import Gathered, OfRank
from bpt.train.state.stored import StoredBlob

Extras = Mapping[str, Mapping[str, Tensor]]
"""Exchange → name → tensor, as in TrainState."""


class Remembered(NamedTuple):
    """A tensor of one rank that is gathered on rank 0: its identity and its values."""

    entry: pb.ExchangeMemory
    values: Gathered


def exchange_state_of(extras: Extras, world: Communicator, dtype: torch.dtype) -> list[Remembered]:
    """Return the memory of all ranks of ``world``, in the same order on all; a collective call.

    Args:
        extras: the memory of this rank.
        dtype: the type of all tensors.
    """
    own = [(exchange, name, tuple(value.shape)) for exchange, of in extras.items() for name, value in of.items()]
    return [
        Remembered(
            pb.ExchangeMemory(rank=rank, exchange=exchange, name=name),
            OfRank(world, rank, extras[exchange][name] if rank == world.rank else None, shape, dtype),
        )
        for rank, theirs in enumerate(world.allgather(own))
        for exchange, name, shape in theirs
    ]


def keep_rank(state: pb.SolverState, stored: Sequence[StoredBlob], rank: int | None) -> None:
    """Keep one rank's memory in ``state``, with its values, and drop that of the others.

    Args:
        stored: the values of ``state.exchange_memory``.
        rank: the rank; ``None``: drop the memory of all ranks.
    """
    chosen = [(entry, blob) for entry, blob in zip(state.exchange_memory, stored, strict=True) if entry.rank == rank]
    entries = []
    for entry, blob in chosen:
        own = pb.ExchangeMemory()
        own.CopyFrom(entry)
        own.values.CopyFrom(array_to_blob(blob.read(blob.shape)))
        entries.append(own)
    del state.exchange_memory[:]
    state.exchange_memory.extend(entries)


def extras_of(state: pb.SolverState) -> dict[str, dict[str, Tensor]]:
    """Return the exchange's memory in ``state``, which is that of one rank."""
    extras: dict[str, dict[str, Tensor]] = {}
    for entry in state.exchange_memory:
        extras.setdefault(entry.exchange, {})[entry.name] = torch.from_numpy(blob_to_array(entry.values).copy())
    return extras
