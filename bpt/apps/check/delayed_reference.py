"""The reference for ``schedule: DELAYED``: one process applies old gradients of the whole net (Hybrid, Eq. 1 and 2).

The rule is the paper's, not the pipeline's code. The layers form n runs, each of which is on one stage. In iteration t
run i (from 0) applies the gradient of batch t - (n - 1 - i). That gradient is of the whole net, at the weights that all
runs had when the batch began. Until then, a run keeps its weights. The learning rate is that of the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby

from torch import Tensor

from bpt.graph.staging import Staging
from bpt.train.runtime.runtime import Runtime


def delays_of(staging: Staging) -> dict[str, int]:
    """Return the iterations by which the gradients of each layer are late, by its name."""
    runs = [len(list(run)) for _, run in groupby(staging.of_layers)]
    late = [len(runs) - 1 - number for number, layers in enumerate(runs) for _ in range(layers)]
    return dict(zip(staging.layers, late, strict=True))


class DelayedUpdates:
    """Lets a runtime of one process apply the gradients of earlier iterations.

    Args:
        runtime: trains the whole net; its gradients are those of the batch of the iteration.
        delays: layer name → the iterations by which its gradients are late.
        corrects: whether updates correct that (``correction: NESTEROV``).
    """

    def __init__(self, runtime: Runtime, delays: Mapping[str, int], corrects: bool = False) -> None:
        net = runtime.net
        self._runtime = runtime
        self._corrects = corrects
        self._values = [net.value(param) for param in net.local_params]
        self._delays = [delays[net.graph.nodes[param.layer].name] for param in net.local_params]
        self._gradients: deque[list[Tensor | None]] = deque(maxlen=1 + max(self._delays, default=0))
        self._update = runtime.updater.rule.update
        runtime.updater.before_update.append(self._exchange_gradients)
        runtime.updater.rule.update = self._apply  # type: ignore[method-assign]

    def _exchange_gradients(self, loss: float) -> None:
        """Keep the gradients of this iteration; give each parameter those that are due, ``None`` if there are none."""
        self._gradients.appendleft([None if v.grad is None else v.grad.clone() for v in self._values])
        for index, (value, delay) in enumerate(zip(self._values, self._delays, strict=True)):
            value.grad = self._gradients[delay][index] if delay < len(self._gradients) else None

    def _apply(
        self, rate: float, iteration: int, members: Sequence[int] | None = None, late: int | None = None
    ) -> None:
        """Update each run of layers by the rate of its batch; one without gradients keeps its weights."""
        for delay in sorted(set(self._delays)):
            if delay <= iteration:
                own = [index for index, each in enumerate(self._delays) if each == delay]
                rate = self._runtime.updater.rates(iteration - delay)
                self._update(rate, iteration - delay, own, delay if self._corrects else None)
