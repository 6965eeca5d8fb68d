"""OuterVersions: the common weights of LOCAL's replicas, from which an outer optimizer steps (``outer_param``).

All ranks have the same averages, so each makes the same step, and nothing more is sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bpt.config.plan.run_plan import OuterSpec
from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.flat import flatten
from bpt.parallel.outer.outer_step import Floats, OuterMomentum, OuterSteps

_VERSION = "version"


class OuterVersions:
    """The newest version of each bucket's weights, and its momentum.

    Args:
        param: ``outer_param``; with type NONE nothing is kept, and an average is the next version.
    """

    def __init__(self, param: OuterSpec) -> None:
        self._step = OuterSteps(param).next()
        self._newest: dict[str, Floats] = {}
        self._momentum: defaultdict[str, OuterMomentum] = defaultdict(OuterMomentum)

    @torch.no_grad()
    def begin(self, buckets: Iterable[Bucket]) -> None:
        """Note the weights of buckets that have no version yet: replicas have them in common until they update."""
        for bucket in buckets if self._step else ():
            if bucket.label not in self._newest:
                row = flatten(parameter.to("cpu", bucket.wire) for parameter in bucket.parameters)
                self._newest[bucket.label] = row.numpy()

    def step(self, bucket: Bucket, average: Tensor) -> None:
        """Replace the ``average`` of a bucket's weights, in its memory, by the next version."""
        if self._step is None:
            return
        row, newest = average.numpy(), self._newest[bucket.label]
        row[:] = newest + self._momentum[bucket.label].step(self._step, row - newest)
        self._newest[bucket.label] = row.copy()

    def state(self, diverged: bool) -> dict[str, Tensor]:
        """Return the memory by name; the version only if replicas have ``diverged`` from it."""
        named = {f"{label} {_VERSION}": newest for label, newest in self._newest.items()} if diverged else {}
        for label, momentum in self._momentum.items():
            named |= {f"{label} {name}": values for name, values in momentum.state().items()}
        return {name: torch.from_numpy(values) for name, values in named.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a ``state``; what it lacks begins anew."""
        self._newest, self._momentum = {}, defaultdict(OuterMomentum)
        memory: defaultdict[str, dict[str, Floats]] = defaultdict(dict)
        for key, values in state.items() if self._step else ():
            label, is_momentum, name = key.rpartition(" outer ")
            if is_momentum:
                memory[label][f"outer {name}"] = values.numpy().copy()
            elif key.endswith(f" {_VERSION}"):
                self._newest[key.removesuffix(f" {_VERSION}")] = values.numpy().copy()
        for label, of_label in memory.items():
            self._momentum[label].load(of_label)
