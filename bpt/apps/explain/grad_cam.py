"""Grad-CAM: compute where in its maps a layer finds evidence for a class.

Selvaraju et al., *Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization* (2017), Eq. 1
and 2, for maps with any number of spatial axes. With three it is the explainable block of 3D-ResAttNet (Akintoye et
al., *A Hybrid Parallelization Approach for Distributed and Scalable Deep Learning*, §4.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.errors import BptError, RunError, UserError
from bpt.graph.layer_graph import Edge
from bpt.graph.layer_spec import count
from bpt.nn.net import Net
from bpt.system.device.torch_errors import kernel_error

Array: TypeAlias = NDArray[np.floating[Any]]

_ROUNDING = 1e-3  # voxels; the borders of the box that the net sees are in single precision


@dataclass(frozen=True)
class Explanation:
    """The Grad-CAM map of a layer for one class of one sample.

    Attributes:
        heat: the map ``ReLU(Σ_k α_k A^k)``, of the layer's spatial shape; at least 0, not normalised.
        alpha: the weight of each of the layer's channels.
        scores: the scores of all classes, (classes,), before any softmax.
        chosen: the explained class.
    """

    heat: Tensor
    alpha: Tensor
    scores: Tensor
    chosen: int

    @property
    def best(self) -> int:
        """The class with the highest score."""
        return int(self.scores.argmax())


def grad_cam(net: Net, sample: Tensor, layer: Edge, scores: Edge, chosen: int | None = None) -> Explanation:
    """Explain the score of class ``chosen`` by the maps of ``layer``.

        α_k = mean over places of d y^c / d A^k_place,    heat = ReLU(Σ_k α_k A^k)

    A is ``layer``, and y^c is the score of the class. No other gradients are computed.

    Args:
        net: a net with one input, in its TEST phase; its graph is built with ``force_backward``.
        sample: the input, (1, channels, spatial axes …).
        layer: an edge of shape (1, K, spatial axes …) that ``scores`` is computed from.
        scores: an edge with one number for each class.
        chosen: the class, from 0; ``None``: the class with the highest score.

    Raises:
        UserError: there is no such class.
        RunError: a score or a gradient is not finite, or memory is short.
    """
    graph = net.graph
    classes = count(scores.shape)
    if chosen is not None and not 0 <= chosen < classes:
        raise UserError(f"there is no class {chosen}; the net has {classes}, from 0 to {classes - 1}")
    source = graph.input_edges[0]
    # The net drops each other edge when its reader has read it.
    keep = frozenset((layer.index, scores.index))
    values = {source.index: sample}
    with torch.no_grad():
        net.run(0, layer.producer + 1, values, keep)
    maps = values[layer.index].detach().requires_grad_()
    values[layer.index] = maps.clone()  # a layer in place may write over it
    with torch.enable_grad():
        net.run(layer.producer + 1, scores.producer + 1, values, keep)
        y = values[scores.index].flatten()
        if not bool(y.isfinite().all()):
            raise RunError(f'blob "{scores.blob}": the class scores are not finite: {y.tolist()}')
        target = int(y.argmax()) if chosen is None else chosen
        (gradient,) = _differentiate(y[target], maps)
    found = maps.detach()
    if gradient is None:
        raise UserError(f'no gradient of the class scores reaches blob "{layer.blob}"')
    alpha = gradient[0].flatten(1).mean(1)
    heat = torch.relu(torch.tensordot(alpha, found[0], 1))
    if not bool(heat.isfinite().all()):
        raise RunError(f'blob "{layer.blob}": its maps or their gradients are not finite')
    return Explanation(heat, alpha, y.detach(), target)


def _differentiate(y: Tensor, maps: Tensor) -> tuple[Tensor | None, ...]:
    if not y.requires_grad:
        return (None,)
    try:
        return torch.autograd.grad(y, (maps,), allow_unused=True)
    except BptError:
        raise
    except (RuntimeError, MemoryError) as error:
        raise kernel_error("backward pass to the explained layer", error) from error


def spread(heat: Tensor, box: Sequence[int], positions: Sequence[Array]) -> Array:
    """Return ``heat`` on another grid, by linear interpolation along each axis, divided by its maximum: in [0, 1].

    The map's cells divide the box that the net sees evenly: cell i of k has its centre at (i + 1/2) n / k - 1/2, in
    the net's own voxels (there are n, with their centres at 0 … n - 1). Between the outermost centres and the border of
    the box, the value is that of the outermost cell. Outside the box, which the net does not see, it is 0. A map of
    zeros stays 0.

    Args:
        heat: the map, at least 0, with any number of axes.
        box: the spatial shape of the net's input (n of each axis).
        positions: for each axis, the places of the new grid's points, in the net's voxels.

    Returns:
        float32, of shape (len(positions[0]), …).
    """
    wide = heat.detach().cpu().double().numpy()
    for axis, (n, at) in enumerate(zip(box, positions, strict=True)):
        k = wide.shape[axis]
        where = np.clip((at + 0.5) * k / n - 0.5, 0, k - 1)
        low = np.minimum(where.astype(np.int64), max(k - 2, 0))
        high = np.minimum(low + 1, k - 1)
        along = [-1 if axis == other else 1 for other in range(wide.ndim)]
        part = (where - low).reshape(along)
        seen = ((at > -0.5 - _ROUNDING) & (at < n - 0.5 + _ROUNDING)).reshape(along)
        wide = (wide.take(low, axis) * (1 - part) + wide.take(high, axis) * part) * seen
    most = wide.max()
    return (wide / most if most > 0 else wide).astype(np.float32)
