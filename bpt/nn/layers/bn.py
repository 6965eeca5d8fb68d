"""BN: batch normalisation with a learned scale and shift, of SegNet's Caffe and of PSPNet's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.layers.scale import normalise_plainly, scale_channels
from bpt.nn.layers.sync_batch_norm import normalise_over_ranks
from bpt.nn.pass_context import PassContext

FIELD = "bn_param"
SEGNETS = ("scale_filler", "shift_filler", "bn_mode")
PSPNETS = ("slope_filler", "bias_filler", "momentum", "frozen")
EPS = "eps"
SEGNETS_EPS = 1e-9


@LAYERS.register("BN")
class BN(Layer):
    """``scale · (x - mean) / sqrt(variance + eps) + shift`` for each channel. Two of Caffe's forks have this name.

    Bottom and top ``(N, channels, …)``.

    ``scale_filler``, ``shift_filler`` or ``bn_mode`` mean SegNet's layer. Its blobs are scale and shift, ``(1,
    channels, 1, 1)``. ``bn_mode: LEARN`` normalises by the batch, also in tests, with ``eps`` or 1e-9. A second and a
    third top are its means and variances. ``INFERENCE`` does not normalise: a script has folded the statistics into
    scale and shift. (Badrinarayanan, Kendall, Cipolla, *SegNet*, 2015.)

    ``slope_filler``, ``bias_filler``, ``momentum``, ``frozen``, or ``eps`` without a field of SegNet's, mean PSPNet's
    layer. It has two more blobs, mean and (biased) variance. A training pass by the batch keeps ``momentum`` (0.9) of
    them and adds the rest of the batch's. Tests normalise by them, and so does training under ``frozen``, which learns
    nothing. (Zhao et al., *Pyramid Scene Parsing Network*, 2017.)

    Without such a field the number of ``param`` messages decides: up to 2 mean SegNet's, more mean PSPNet's. A layer
    without any is refused. As for BatchNorm the batch is a rank's own samples, or under ``sync_batch_norm`` that of all
    ranks.
    """

    arity = Arity(tops=(1, 3))
    numbers = Autocast.WIDEST
    family = Family.NORM

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.bn_param
        self.keeps_statistics = _keeps_statistics(spec)
        self.eps = param.eps if self.keeps_statistics or param.HasField(EPS) else SEGNETS_EPS
        self.momentum = param.momentum
        self.sync = self.syncs(spec, context.sync_batch_norm)
        by_batch = self.normalises_by_batch(spec)
        self.sample_independent, self.no_collectives = not by_batch, not self.sync
        self.repeatable = not (by_batch and self.keeps_statistics)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, bottom = spec.param.bn_param, bottoms[0]
        if len(bottom) < 2:
            raise spec.error(f"needs a bottom of at least 2 axes (N, channels), not shape {bottom}", "bottom")
        if not 0 <= param.momentum <= 1:
            raise spec.error(f"momentum {param.momentum:g} is outside [0, 1]", FIELD, "momentum")
        shape = (1, bottom[1], 1, 1)
        if not _keeps_statistics(spec):
            if len(spec.tops) > 1 and param.bn_mode == pb.BNParameter.INFERENCE:
                raise spec.error("has no statistics for more tops with bn_mode: INFERENCE", "top", 1)
            params = ParamSpec(shape, param.scale_filler), ParamSpec(shape, param.shift_filler)
            return LayerShapes((bottom, shape, shape)[: len(spec.tops)], params)
        if len(spec.tops) > 1:
            raise spec.error("is PSPNet's BN, which has one top", "top", 1)
        learns = not param.frozen
        # As in Caffe: 0 would be a bad variance for tests, but a training pass adds to it.
        zero, first = (pb.FillerParameter(type="constant", value=value) for value in (0, param.frozen))
        return LayerShapes(
            (bottom,),
            (
                ParamSpec(shape, param.slope_filler, learns),
                ParamSpec(shape, param.bias_filler, learns),
                ParamSpec(shape, zero, learnable=False),
                ParamSpec(shape, first, learnable=False),
            ),
        )

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(tops[0]) * (7 if cls.normalises_by_batch(spec) else 2)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return "its further tops are of all samples together" if len(spec.tops) > 1 else ""

    @classmethod
    def normalises_by_batch(cls, spec: LayerSpec) -> bool:
        param = spec.param.bn_param
        if _keeps_statistics(spec):
            return not param.frozen and spec.param.phase != pb.TEST
        return bool(param.bn_mode == pb.BNParameter.LEARN)

    @classmethod
    def syncs(cls, spec: LayerSpec, by_default: bool) -> bool:
        return by_default and cls.normalises_by_batch(spec)

    @property
    def _by_batch(self) -> bool:
        """Whether it now normalises by the batch. A net may change from training to tests."""
        if self.keeps_statistics:
            return self.training and not self.spec.param.bn_param.frozen
        return self.normalises_by_batch(self.spec)

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        x = bottoms[0]
        scale, shift, *stored = (self.blob(index).flatten() for index in range(len(self.blobs)))
        if self._by_batch:
            top, mean, variance, elements = self._normalise(x, scale, shift)
            if stored and elements:
                self._remember(stored, mean, variance)
            shape = (1, -1, 1, 1)
            tops = (top, mean.to(x.dtype).view(shape), variance.to(x.dtype).view(shape))
            return tops[: len(self.spec.tops)] if len(self.spec.tops) > 1 else top
        if stored:
            mean, variance = stored
            return torch.batch_norm(x, scale, shift, mean, variance, False, 0, self.eps, torch.backends.cudnn.enabled)
        return scale_channels(x, scale, shift)

    def _normalise(self, x: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """Normalise by the batch.

        Returns:
            The top; its means and biased variances by channel, without gradient; and the number of elements of a
            channel.
        """
        if self.sync and self.context.ranks > 1:
            top, mean, variance, elements = normalise_over_ranks(x.to(scale.dtype), self.eps, self.total)
            top = scale_channels(top.to(x.dtype), scale, shift)
        else:
            elements = x.shape[0] * count(x.shape[2:])
            mean, variance = torch.zeros_like(scale), torch.zeros_like(scale)
            if not elements:
                return scale_channels(x, scale, shift), mean, variance, 0
            if is_exported():
                top, mean, variance = normalise_plainly(x, self.eps)
                return scale_channels(top, scale, shift), mean, variance, elements
            fast = torch.backends.cudnn.enabled
            top = torch.batch_norm(x, scale, shift, mean, variance, True, 1, self.eps, fast)
        biased = variance * ((elements - 1) / elements) if elements > 1 else torch.zeros_like(variance)
        return top, mean, biased, elements

    @torch.no_grad()
    def _remember(self, stored: Sequence[Tensor], mean: Tensor, variance: Tensor) -> None:
        for kept, new in zip(stored, (mean, variance), strict=True):
            kept.lerp_(new.to(kept.dtype), 1 - self.momentum)


def _keeps_statistics(spec: LayerSpec) -> bool:
    """Return whether the layer is PSPNet's BN.

    Raises:
        LayerError: the text does not say which.
    """
    param = spec.param.bn_param
    segnets, pspnets = ([name for name in names if param.HasField(name)] for names in (SEGNETS, PSPNETS))
    if not segnets and param.HasField(EPS):
        pspnets.append(EPS)  # later SegNets have it, too
    if segnets and pspnets:
        raise spec.error(
            f"{segnets[0]} is of SegNet's BN and {pspnets[0]} of PSPNet's; take out the fields of one",
            FIELD,
            pspnets[0],
        )
    if not segnets and not pspnets and not spec.param.param:
        raise spec.error(
            "may be SegNet's BN or PSPNet's: write bn_param { bn_mode: LEARN } for SegNet's, or bn_param { "
            "frozen: false } "
            "for PSPNet's, whose weights have four blobs",
            "type",
        )
    return bool(pspnets) or (not segnets and len(spec.param.param) > 2)
