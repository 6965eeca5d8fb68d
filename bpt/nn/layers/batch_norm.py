"""BatchNorm: normalises each channel over the batch. Scale and bias are Scale's, except in two forks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Autocast, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels import by_channel
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.channel_affine import ChannelAffine, Weights
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.layers.scale import normalise_plainly, scale_channels
from bpt.nn.layers.sync_batch_norm import normalise_over_ranks
from bpt.nn.pass_context import PassContext


def is_nvidias(param: pb.BatchNormParameter) -> bool:
    """Return whether a layer scales as NVIDIA's Caffe does.

    A ``bias_filler`` next to another field of Intel's is Intel's.
    """
    intels = any(map(param.HasField, ("use_weight_bias", "bias_term", "filler", "stats_batch_size")))
    return param.scale_bias or param.HasField("scale_filler") or (param.HasField("bias_filler") and not intels)


def scale_fillers(spec: LayerSpec) -> tuple[pb.FillerParameter, ...]:
    """Return the fillers of scale and bias of each channel, which two forks have; () if the layer does not scale."""
    param = spec.param.batch_norm_param
    if is_nvidias(param):
        if param.HasField("use_weight_bias"):
            words = "scale_bias is of NVIDIA's Caffe, use_weight_bias of Intel's, which mean different things; keep one"
            raise spec.error(words, "batch_norm_param", "use_weight_bias")
        return _or(param, "scale_filler", 1), _or(param, "bias_filler", 0)
    if not (param.use_weight_bias and any(map(param.HasField, ("use_weight_bias", "bias_term", "filler")))):
        return ()
    if len(spec.param.param) == 3:  # as in Intel's Caffe, three param messages mean BVLC's layer
        return ()
    scale = _or(param, "filler", 1)
    return (scale, _or(param, "bias_filler", 0)) if param.bias_term else (scale,)


def _or(param: pb.BatchNormParameter, field: str, value: float) -> pb.FillerParameter:
    """Return the filler of the text, or by default a constant."""
    if param.HasField(field):
        filler: pb.FillerParameter = getattr(param, field)
        return filler
    return pb.FillerParameter(type="constant", value=value)


@LAYERS.register("BatchNorm")
class BatchNorm(Layer):
    """``(x - mean) / sqrt(variance + eps)`` for each channel.

    Bottom and top ``(N, channels, …)``; a bottom of one axis is one channel. Mean and (biased) variance are the
    batch's. Under ``use_global_stats`` they are the stored ones; that is the default in tests.

    Blobs, which no solver trains: sums of means ``(channels,)``, sums of unbiased variances ``(channels,)`` and their
    weight ``(1,)``. A forward pass with the batch's statistics multiplies all three by ``moving_average_fraction`` and
    adds the batch's, with weight 1. The stored statistics are the sums over their weight, or 0 if that is 0. A batch
    without elements changes nothing.

    ``scale_bias`` (or one of its fillers) of NVIDIA's Caffe, and ``use_weight_bias: true`` of Intel's, add a scale and
    a bias by channel: two further blobs, ``(channels,)`` each, which are trained. With ``bias_term: false`` there is
    only the first. NVIDIA's stored statistics are moving averages themselves: the first batch's, then
    ``moving_average_fraction`` of them plus the rest of the batch's. Their weight is 1.

    With many ranks, the batch is a rank's own samples, as in Caffe. Under ``sync`` (by default the value of
    ``parallel_param { sync_batch_norm }``) it is the whole batch. With micro-batches it is a micro-batch, of its rank
    or of all ranks, unless ``pipeline_param { batch_norm_over: BATCH }`` lets the layer gather them.
    """

    numbers = Autocast.WIDEST
    family = Family.NORM
    folds_affine = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.batch_norm_param
        self.fraction = param.moving_average_fraction
        self.eps = param.eps
        self.scale_blobs = len(scale_fillers(spec))
        self.averages = is_nvidias(param)
        self.sync = param.sync if param.HasField("sync") else context.sync_batch_norm
        self.use_global_stats = param.use_global_stats if param.HasField("use_global_stats") else None
        self.sample_independent, self.no_collectives = not self.normalises_by_batch(spec), not self.sync
        self.repeatable = not self.normalises_by_batch(spec)
        self.top_is_free = not self.sync  # over ranks the backward pass reads the top

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom = bottoms[0]
        if not bottom:
            raise spec.error("needs a bottom of at least 1 axis, not a scalar", "bottom")
        for position, param in enumerate(spec.param.param[:3]):
            if param.lr_mult:
                raise spec.error(
                    f"param {position} has lr_mult {param.lr_mult:g}, but the statistics of a BatchNorm are not "
                    "trained; write lr_mult: 0 or leave param out",
                    "param",
                    position,
                )
        channels = bottom[1] if len(bottom) > 1 else 1
        zero = pb.FillerParameter(type="constant", value=0)
        params = [ParamSpec(shape, zero, learnable=False) for shape in ((channels,), (channels,), (1,))]
        params += [ParamSpec((channels,), filler) for filler in scale_fillers(spec)]
        return LayerShapes((bottom,), tuple(params))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        scaled = len(scale_fillers(spec))
        # It subtracts and divides, and by the batch also sums, squares and sums.
        return count(tops[0]) * ((5 if cls.normalises_by_batch(spec) else 2) + scaled)

    @classmethod
    def reread(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(bottoms[0]) if cls.normalises_by_batch(spec) else 0

    @classmethod
    def normalises_by_batch(cls, spec: LayerSpec) -> bool:
        param = spec.param.batch_norm_param
        return not param.use_global_stats if param.HasField("use_global_stats") else spec.param.phase != pb.TEST

    @classmethod
    def syncs(cls, spec: LayerSpec, by_default: bool) -> bool:
        param = spec.param.batch_norm_param
        return cls.normalises_by_batch(spec) and (param.sync if param.HasField("sync") else by_default)

    @property
    def uses_stored(self) -> bool:
        """Whether it now normalises by the stored statistics, not by the batch's."""
        return not self.training if self.use_global_stats is None else self.use_global_stats

    def forward(self, *bottoms: Tensor) -> Tensor:
        return self.forward_by(self.folded(ChannelAffine()), bottoms[0])

    def channel_affine(self) -> ChannelAffine | None:
        if not self.uses_stored:
            return None
        mean, variance = self._stored()
        inverse = torch.rsqrt(variance + self.eps)
        return ChannelAffine(inverse, -mean * inverse).then(self._scale())

    def folded(self, affine: ChannelAffine) -> Weights:
        both = self._scale().then(affine)
        return both.factors, both.summands

    def _scale(self) -> ChannelAffine:
        """Return the affine of the fork's further blobs."""
        return ChannelAffine(*(self.blob(3 + index) for index in range(self.scale_blobs)))

    def forward_by(self, weights: Weights, bottom: Tensor) -> Tensor:
        """Return the normalised bottom times the first of ``weights`` plus the second, each by channel."""
        x = bottom if bottom.dim() > 1 else bottom.unsqueeze(1)
        y = self._by_stored(x, *weights) if self.uses_stored else self._by_batch(x, *weights)
        return y if y.dim() == bottom.dim() else y.view(bottom.shape)

    def _stored(self) -> tuple[Tensor, Tensor]:
        """Return the stored mean and variance."""
        mean, variance, weight = (self.blob(index) for index in range(3))
        factor = torch.where(weight == 0, 0, 1 / weight)
        return mean * factor, variance * factor

    def _by_stored(self, x: Tensor, factors: Tensor | None, summands: Tensor | None) -> Tensor:
        return self._normalise(x, factors, summands, *self._stored(), by_batch=False)

    def _by_batch(self, x: Tensor, factors: Tensor | None, summands: Tensor | None) -> Tensor:
        if self.sync and self.context.ranks > 1:
            wide = x.to(self.blob(0).dtype)
            y, mean, variance, elements = normalise_over_ranks(wide, self.eps, self.total)
            self.add_statistics(mean, variance, elements)
            y = y.to(x.dtype)
            return y if factors is summands is None else scale_channels(y, factors, summands)
        elements = x.shape[0] * count(x.shape[2:])
        if not elements:
            return scale_channels(x, factors, summands) if factors is not None or summands is not None else x
        if is_exported():  # a program for inference, whose weights do not change
            return scale_channels(normalise_plainly(x, self.eps)[0], factors, summands)
        if by_channel.applies(x):
            y, mean, variance = by_channel.normalise(x, self.eps, factors, summands)
        else:
            mean, variance = (self.blob(0).new_zeros(x.shape[1]) for _ in range(2))
            y = self._normalise(x, factors, summands, mean, variance, by_batch=True)
            if elements == 1:
                variance = torch.zeros_like(variance)  # unbiased, it would be 0 / 0
        self.add_statistics(mean, variance, elements)
        return y

    @torch.no_grad()
    def add_statistics(self, mean: Tensor, variance: Tensor, elements: int) -> None:
        """Add the statistics of a batch to the stored ones.

        Args:
            mean, variance: by channel, ``(channels,)``; the variance is the unbiased one.
            elements: the number of elements of a channel in the batch; 0 changes nothing.
        """
        if not elements:
            return
        blobs = [self.blob(index) for index in range(3)]
        if self.averages:
            part = torch.where(blobs[2] == 0, 1.0, 1 - self.fraction)
            for blob, seen in zip(blobs[:2], (mean, variance), strict=True):
                blob.add_((seen - blob) * part)
            blobs[2].fill_(1)
            return
        torch._foreach_mul_(blobs, self.fraction)
        torch._foreach_add_(blobs[:2], [mean, variance])
        blobs[2].add_(1)

    def _normalise(
        self,
        x: Tensor,
        factors: Tensor | None,
        summands: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        by_batch: bool,
    ) -> Tensor:
        """Normalise by ``mean`` and ``variance``, or by the batch's.

        The batch's are then left in the two tensors, the variance unbiased.
        """
        if factors is None and summands is not None:  # torch's kernels for GPUs take both or none
            factors = torch.ones_like(summands)
        elif factors is not None and summands is None:
            summands = torch.zeros_like(factors)
        fast = torch.backends.cudnn.enabled
        return torch.batch_norm(x, factors, summands, mean, variance, by_batch, 1, self.eps, fast)
