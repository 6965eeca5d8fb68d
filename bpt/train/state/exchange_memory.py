"""The memory of all ranks' exchanges in a snapshot, such as a codec's residuals, which no other rank has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.base.log import plural
from bpt.config.plan.run_plan import OUTER, ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import array_to_blob, blob_to_array
from bpt.parallel.outer.outer_rules import STEPPING
from bpt.parallel.outer.outer_step import MOMENTUM_NAMES
from bpt.system.comm.base import Communicator
from bpt.train.state.blob_gathering import Gathered, OfRank
from bpt.train.state.stored import StoredBlob

Extras = Mapping[str, Mapping[str, Tensor]]
"""Exchange → name → tensor, as in TrainState."""

SERVER_MEMORY = "outer"  # the name of a server's memory in a snapshot
_LOCAL = "Local"  # that of LOCAL's
_MOMENTUM, _TABLE, _WEIGHTS, _MOMENTS, _RESIDUALS = "momentum", "table", "weights", "moments", "residuals"


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


def lost_memory(state: pb.SolverState, param: ParallelSpec, exchange: str, ranks: int) -> Iterator[str]:
    """Yield a sentence about each kind of memory in a snapshot from which a run does not continue.

    Args:
        state: that of the snapshot, with the memory of all ranks.
        param: of the run.
        exchange: the name of the memory of the run's exchange.
        ranks: the number of ranks that read the snapshot.
    """
    is_plain = ranks == 1 and param.exchange == pb.ParallelParameter.LOCAL
    has_momentum = bool(param.outer_param.name) and param.exchange in STEPPING and not is_plain
    read = (exchange, SERVER_MEMORY) if param.exchange in OUTER else (exchange,)
    others = {
        _kind(each) for each in state.exchange_memory if each.exchange not in read or state.exchange_ranks != ranks
    }
    if _MOMENTUM in others or (not has_momentum and _MOMENTUM in map(_kind, state.exchange_memory)):
        yield "the outer momentum of the snapshot is not for this run" + ": it begins at 0" * has_momentum
    if _TABLE in others:
        yield "the newest submissions of workers in the snapshot are not for this run"
    if own := next((kind for kind in (_WEIGHTS, _MOMENTS) if kind in others), ""):
        made = f"the snapshot was made on {plural(state.exchange_ranks, 'rank')} with {own} of their own"
        yield f"{made}: this run continues from the average of those"
    if _RESIDUALS in others:
        yield (
            "what the ranks of the snapshot had left out of their gradients is not for this run"
            + ", and residuals begin anew" * bool(param.compression_param.name)
        )


def _kind(entry: pb.ExchangeMemory) -> str:
    """Return the kind of a tensor, by its names."""
    if entry.name.endswith(MOMENTUM_NAMES):
        return _MOMENTUM
    if entry.exchange == SERVER_MEMORY:
        return _TABLE
    if entry.exchange != _LOCAL:
        return _RESIDUALS
    return _MOMENTS if " moment " in entry.name else _WEIGHTS


def extras_of(state: pb.SolverState) -> dict[str, dict[str, Tensor]]:
    """Return the exchange's memory in ``state``, which is that of one rank."""
    extras: dict[str, dict[str, Tensor]] = {}
    for entry in state.exchange_memory:
        extras.setdefault(entry.exchange, {})[entry.name] = torch.from_numpy(blob_to_array(entry.values).copy())
    return extras
