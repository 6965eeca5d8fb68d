"""TrainState: the whole state of a run between two iterations, without its ranks and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bpt.engine.optim.rates import Plateau
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.graph.part import WHOLE, Part
from bpt.system.comm.base import Communicator
from bpt.train.state.best import Best
from bpt.train.state.blob_gathering import Gathered

Blob = tuple[str, int]
"""A parameter blob: its layer's name, and its number there."""


@dataclass(frozen=True)
class TrainState:
    """The state that a run needs to continue: the whole state, or one rank's part.

    A state from a running net shares the net's memory until it is copied.

    Attributes:
        iteration: number of completed iterations.
        seed: the seed of all random numbers.
        weights: the values of each parameter blob.
        moments: the moments of each blob in the update rule, a tensor for each moment.
        positions: number of samples that each data layer has provided, by net ("train", "test#0", …) and layer.
        losses: the losses in the smoothed loss, oldest first.
        tuned: the choices by measurements, which are equal on all ranks: "engine", "inner", "algorithms", "chunks",
            "half_layers", "shares".
        loss_scale: the scale, and the iterations since its last change; ``None``: it is constant.
        plateau: the state of ``lr_policy: "plateau"``; ``None``: the policy is another one.
        best: the best test so far; ``None``: there is none, or the run does not use it.
        tested: number of iterations before the last complete test; -1: there was none.
        run: identifies the start of training; "": any run.
        noise: what was seen of the noise of gradients, where the batch follows it.
        extras: tensors of other parts with a state, such as an exchange's residuals, by name. They belong to this rank
            alone, so a gathered state has none.
    """

    iteration: int
    seed: int
    weights: Mapping[Blob, Tensor]
    moments: Mapping[Blob, tuple[Tensor, ...]] = field(default_factory=dict)
    positions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    tuned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    loss_scale: tuple[float, int] | None = None
    plateau: Plateau | None = None
    best: Best | None = None
    tested: int = -1
    run: str = ""
    noise: tuple[float, ...] = ()
    extras: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def copy(self) -> TrainState:
        """Return a copy of the state in new memory."""
        return replace(
            self,
            weights={blob: _cloned(value) for blob, value in self.weights.items()},
            moments={blob: tuple(map(_cloned, values)) for blob, values in self.moments.items()},
            extras={name: {key: _cloned(value) for key, value in of.items()} for name, of in self.extras.items()},
        )

    def gathered(
        self, graph: LayerGraph, comm: Communicator, parts: Sequence[Part], dtype: torch.dtype
    ) -> TrainState | None:
        """Return the whole state of all ranks on rank 0 of ``comm``, and ``None`` on the others. A collective call.

        Args:
            graph: the training net.
            parts: each rank's part of it.
            dtype: the type of weights and moments on all ranks, because a rank may hold none.
        """
        weights: dict[Blob, Tensor] = {}
        moments: dict[Blob, tuple[Tensor, ...]] = {}
        for param in graph.learnable:
            blob = blob_of(graph, param)
            count = max(comm.allgather(len(self.moments.get(blob, ()))))
            own = self.moments.get(blob, (None,) * count)
            whole = [Gathered(comm, parts, param, value, dtype) for value in (self.weights.get(blob), *own)]
            if comm.rank == 0:
                first, *rest = (torch.from_numpy(each.array()).clone() for each in whole)
                weights[blob], moments[blob] = first, tuple(rest)
            else:
                for each in whole:
                    each.drain()
        everybody = comm.allgather(self.positions)  # in a pipeline, the first stage has the data layers
        positions = {place: samples for each in everybody for place, samples in each.items()}
        return None if comm.rank else replace(self, weights=weights, moments=moments, positions=positions, extras={})

    def divided(self, graph: LayerGraph, part: Part = WHOLE) -> TrainState:
        """Return the part of this whole state for a rank with ``part`` of the net, in shared memory."""
        held = [param for param in graph.learnable if part.holds(param)]

        def own(param: Param, value: Tensor) -> Tensor:
            piece = part.slice_of(param)
            return value[piece.index(value.dim())] if piece else value

        return replace(
            self,
            weights={blob: own(param, self.weights[blob]) for param in held if (blob := blob_of(graph, param))},
            moments={
                blob: tuple(own(param, value) for value in self.moments[blob])
                for param in held
                if (blob := blob_of(graph, param)) in self.moments
            },
        )


def blob_of(graph: LayerGraph, param: Param) -> Blob:
    """Return the name of a parameter."""
    return graph.nodes[param.layer].name, param.blob


def _cloned(value: Tensor) -> Tensor:
    return value.detach().clone(memory_format=torch.preserve_format)
