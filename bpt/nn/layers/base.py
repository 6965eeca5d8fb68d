"""The base of all layers, their life cycle, and the registry of layer types.

Life of a layer:

1. ``infer`` (a classmethod) checks the text against the bottoms' shapes and returns the shapes of tops and parameters.
It allocates nothing, so a plan or a summary of a net of any size is cheap.
2. ``Layer(spec, context)`` makes the layer. The Net then passes it the shapes of its bottoms (``set_up``) and gives it
its parameters as ``self.blobs``, in Caffe's order and shapes, filled by the text's fillers.
3. ``forward(*bottoms)`` computes the tops from the bottoms, in Caffe's arithmetic. Gradients come from autograd, or
from a ``torch.autograd.Function`` where Caffe's rule differs from calculus or ours is faster. Bottoms are never
modified, except through the in-place rule of ``Layer.in_place``.

``arity`` gives the number of bottoms and tops of a type. The graph checks it, never a layer.

With many ranks, shapes in ``infer`` are those of the whole batch. ``forward`` has the samples of this rank (axis 0 of
all bottoms), perhaps none. A layer must give each sample the result that it would get in the whole batch. ``share_of``
returns which samples these are. ``of_whole_batch`` turns a count on this rank into a count over all ranks. A layer that
cannot work on a part of the batch gives its reason in ``mixes_samples``.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, TypeVar, cast

from torch import Tensor, nn

from bpt.base.registry import Registry
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Arity, Autocast, FileKind, LayerShapes, LayerSpec, Shape, count
from bpt.graph.share import ShardRotation, Share, whole_batch
from bpt.nn.kernels.algorithm import BY_TORCH, Algorithms, Kernels
from bpt.nn.layers.channel_affine import ChannelAffine, Weights
from bpt.nn.layers.type_table import TYPES_OF
from bpt.nn.pass_context import CurrentPass, PassContext

T = TypeVar("T")

ALL_BOTTOMS = range(2**31)
"""The places of all bottoms of a layer, for ``bottoms_without_diff``."""


class Family(enum.Enum):
    """The kind of a layer for a reader of networks, in words for the legend of a drawing."""

    DATA = "data"
    CONVOLUTION = "convolution"
    CONNECTED = "inner product"
    RECURRENT = "recurrent"
    POOLING = "pooling"
    ACTIVATION = "activation"
    NORM = "normalisation"
    JOIN = "joins and shapes"
    LOSS = "loss and score"
    OTHER = "other"


@dataclass(frozen=True)
class _Setting:
    field: str


def setting(kind: type[T], field: str) -> T:
    """Return a class attribute that every layer fills from its text when it is made.

    Args:
        kind: the Python type of the value.
        field: the path in LayerParameter, such as ``"tile_param.axis"``.
    """
    return cast(T, _Setting(field))


class Layer(nn.Module):
    """One layer of a net: it says what is computed, not where or when."""

    arity: ClassVar[Arity] = Arity()
    is_loss: ClassVar[bool] = False
    # The number of first tops that are sums over samples, divided by a number of the whole batch. Their values on all
    # ranks add up. In the other tops axis 0 has the samples.
    sums_over_samples: ClassVar[int] = 0
    # The places of tops whose rows (axis 2) are a list. Each row names its sample in column 0, counted from the first
    # one here. The data decide the number of rows.
    listed: ClassVar[tuple[int, ...]] = ()
    # The reason why its samples must stay together, on one rank and in one micro-batch: a clause, as ``mixes_samples``
    # returns it. Empty if the type alone does not decide it.
    whole_batch_only: ClassVar[str] = ""
    # Whether a pass may make fewer rows (axis 0) than ``infer`` says. Each pass then asks the following layers again.
    rows_by_data: ClassVar[bool] = False
    # Whether its result depends on one batch alone, even where it mixes samples. Then whole batches may be on different
    # ranks (``batch_scope: REPLICA``). This is false for losses, whose divisors are those of all ranks.
    within_batch: ClassVar[bool] = False
    # Whether each element of its one top depends on the same element of its one bottom only, without parameters. It can
    # run on a slice of any axis, if ``context.columns`` says which one.
    elementwise: ClassVar[bool] = False
    # Whether its tops are its bottom's numbers in its bottom's memory, perhaps in other shapes, in Caffe as here.
    is_view: ClassVar[bool] = False
    # Whether, unless ``mixes_samples``, the result of a sample does not depend on other samples, and the layer asks
    # neither for their places (``share_of``) nor other ranks. It can run on slices of axis 0 in parallel.
    sample_independent: bool = False
    # Whether it never calls other ranks, though it is not ``sample_independent``: other layers' calls may overtake it.
    no_collectives: bool = False
    # Whether most of its operations are those of a matrix product, at which a processor is fastest.
    multiplies: ClassVar[bool] = False
    # The number type in which it computes where a run is in half precision. ``None`` lets ``autocast`` choose: half
    # precision for layers that multiply, and the type of the bottoms for layers that only move numbers.
    numbers: ClassVar[Autocast | None] = None
    # The blob that is added to whole channels (axis 1), so that a following BatchNorm removes its effect.
    bias_blob: ClassVar[int | None] = None
    # Whether its first top is new memory that no backward pass reads, so that the next layer may write over it.
    top_is_free: bool = False
    # The places of the bottoms over which it can write its one top, by ``overwrite``.
    overwrites: tuple[int, ...] = ()
    # Whether it has ``kernels`` that can run by several algorithms, and the algorithms in use.
    chooses_kernels: ClassVar[bool] = False
    algorithms: Algorithms = BY_TORCH
    # Whether another pass of the same bottoms, in the same context, makes the same tops and has no other effect.
    repeatable: bool = True
    # Whether it can compute the effect of a following layer with a ``channel_affine``, too, by other weights.
    folds_affine: bool = False
    # The floating-point operations for each element of its first bottom, and of its first top; if both are 0, ``flops``
    # counts one for each element of all tops.
    flops_per_bottom: ClassVar[int] = 0
    flops_per_top: ClassVar[int] = 0
    # The bottoms that never get a diff, by place: 0 is the first, -1 the last.
    bottoms_without_diff: ClassVar[Container[int]] = ()
    # Whether the diffs of the bottoms do not depend on the bottoms.
    is_linear: ClassVar[bool] = False
    # The fields of its text with paths of files to read, and the kinds of these files; ``bpt doctor`` checks them.
    files: ClassVar[tuple[tuple[str, FileKind], ...]] = ()
    computes: ClassVar[bool] = True  # False means that it only moves numbers
    family: ClassVar[Family] = Family.OTHER
    reads_images: ClassVar[bool] = False  # its samples are images: (channels, height, width)
    # The field of LayerParameter that holds its settings, if no message there is named after its type.
    settings: ClassVar[str | None] = None
    # Fields of LayerParameter that it reads, or handles itself, in addition to the settings of its type.
    reads: ClassVar[frozenset[str]] = frozenset()
    _settings: ClassVar[dict[str, str]] = {}  # fields of LayerParameter, by the attributes that hold their values

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: value.field for name, value in vars(cls).items() if isinstance(value, _Setting)}
        cls._settings = cls._settings | own

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__()
        for name, field in self._settings.items():
            setattr(self, name, attrgetter(field)(spec.param))
        self.spec = spec
        self._pass = CurrentPass(context)
        self.blobs = nn.ParameterList()
        self._blob_shapes: list[Shape] = []
        self.samples = 0  # the number in the whole batch, axis 0 of the first bottom in the graph; the Net sets it
        self.train(spec.param.phase == 0)  # pb.TRAIN

    @property
    def context(self) -> PassContext:
        """The context of the current pass."""
        return self._pass.context

    def follow(self, current: CurrentPass) -> None:
        """Read the passes of a net from now on. The Net calls this."""
        self._pass = current

    @property
    def own_rotation(self) -> ShardRotation | None:
        """The rotation of a net whose shares rotate with this layer's data; ``None`` if the layer has none."""
        return None

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        """Return the shapes of tops and parameters for these bottoms.

        Raises:
            LayerError: the text or the shapes do not fit; made by ``spec.error(message, *field_path)``. A message about
                shapes shows them.
        """
        raise NotImplementedError

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        """Return the floating-point operations of a forward pass; by default one for each element of the tops."""
        if cls.flops_per_bottom or cls.flops_per_top:
            return cls.flops_per_bottom * count(bottoms[0]) + cls.flops_per_top * count(tops[0])
        return sum(map(count, tops)) if cls.computes else 0

    @classmethod
    def reread(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        """Return how many elements of blobs backward reads again, besides parameters; by default the bottoms'.

        Diffs do not count. The number is 0 where the diffs of the bottoms do not depend on the bottoms: the layer is
        linear in them.
        """
        return sum(map(count, bottoms)) if cls.computes and not (cls.is_view or cls.is_linear) else 0

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        """Return how many numbers training keeps for each number of the tops until backward has run.

        The default is 1: the top itself, which the next layer reads again. A layer that can write its top over a
        bottom, or is folded into the layer before, keeps none of its own (``bpt.nn.fusion``).
        """
        return 0.0 if cls.overwrites else 1.0

    @classmethod
    def autocast(cls, spec: LayerSpec) -> Autocast:
        """Return the numbers in which the layer computes where a run is in half precision."""
        if cls.numbers is not None:
            return cls.numbers
        moves = not cls.computes and cls.arity.bottoms[0] > 0
        return Autocast.HALF if cls.multiplies else Autocast.WIDEST if moves else Autocast.FULL

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        """Return whether this bottom can get a diff, requested by layers before it or by ``force_backward``.

        The caller asks by the place from the front (0, 1, …) and by that from the end (-1, -2, …). One no is enough.
        """
        return bottom not in cls.bottoms_without_diff

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        """Return why the samples of these bottoms (axis 0) cannot be on different ranks; empty if they can.

        BatchNorm is allowed: it normalises by a rank's own samples, as Caffe does, unless it has to ``sync``.

        Returns:
            A clause that completes a sentence: ``"softmax_param { axis: 0 } runs along the samples"``.
        """
        if cls.whole_batch_only:
            return cls.whole_batch_only
        for name, shape in zip(spec.bottom_names, bottoms, strict=True):
            if not shape:
                return f'bottom "{name}" is one number for all samples'
            if shape[0] != bottoms[0][0]:
                return f'bottom "{name}" {shape} has another axis 0 than "{spec.bottom_names[0]}" {bottoms[0]}'
        return ""

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        """Return why the samples of a batch cannot come in micro-batches, one after the other; empty if they can.

        ``of_whole_batch`` of a number that depends on the data needs all samples at the same time.

        Returns:
            A clause that completes a sentence: ``"ignore_label leaves labels out"``.
        """
        return cls.whole_batch_only

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        """Return the settings that a drawing shows, the most important first.

        Args:
            layer: the text of the layer.
            axes: the number of spatial axes of its top.
        """
        return ()

    @classmethod
    def gives_constants(cls, spec: LayerSpec) -> bool:
        """Return whether its tops are the same in each pass, without bottoms, while its parameters do not change."""
        return False

    @classmethod
    def normalises_by_batch(cls, spec: LayerSpec) -> bool:
        """Return whether it normalises by statistics of the samples of a pass, so that their choice matters."""
        return False

    @classmethod
    def syncs(cls, spec: LayerSpec, by_default: bool) -> bool:
        """Return whether it normalises by statistics of the whole batch.

        Args:
            spec: the layer.
            by_default: the default, from ``parallel_param``.
        """
        return False

    @property
    def hidden_state(self) -> tuple[Tensor, ...]:
        """The tensors that a pass leaves for the next one beside blobs, such as the states of a recurrent layer.

        It may be set. With () the next pass is like a first one.
        """
        return ()

    @hidden_state.setter
    def hidden_state(self, states: tuple[Tensor, ...]) -> None:
        assert not states, f"{self.spec.name}: {self.spec.type} keeps nothing"

    def set_up(self, bottoms: Sequence[Shape]) -> None:
        """Prepare for bottoms of these shapes, of the whole batch (Caffe: ``LayerSetUp``). The Net calls it once."""

    def add_blob(self, values: nn.Parameter, shape: Shape) -> None:
        """Give the layer its next parameter blob; the Net calls this."""
        self.blobs.append(values)
        self._blob_shapes.append(shape)

    def blob(self, index: int) -> Tensor:
        """Return parameter blob ``index`` in this layer's shape.

        The values may belong to another layer; under ``share_mode: PERMISSIVE`` even in another shape.
        """
        values: Tensor = self.blobs[index]
        shape = self._blob_shapes[index]
        return values if values.shape == shape else values.view(shape)

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the tops: a tensor if there is one, else a tuple of them in order."""
        raise NotImplementedError

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        """Return the result of ``forward``, in the memory of bottom ``place``, one of ``overwrites``."""
        raise NotImplementedError

    def kernels(self, bottom: Tensor) -> Kernels:
        """Return the kernels on ``bottom`` among which ``algorithms`` choose; none if there is nothing to choose."""
        return {}

    def channel_affine(self) -> ChannelAffine | None:
        """Return its effect on its one bottom, if that is now factors and summands by channel; otherwise ``None``."""
        return None

    def folded(self, affine: ChannelAffine) -> Weights:
        """Return weights with which ``forward_by`` computes this layer, which ``folds_affine``, then ``affine``."""
        raise NotImplementedError

    def forward_by(self, weights: Weights, bottom: Tensor) -> Tensor:
        """Return the top that ``folded`` weights give."""
        raise NotImplementedError

    def share_of(self, bottom: Tensor) -> Share:
        """Return which samples of the whole batch ``bottom``, this layer's first, has on this rank."""
        if not self.context.is_divided:
            return whole_batch(bottom.shape[0] if bottom.shape else 1)
        share = self.context.share(self.samples)
        assert share.count == bottom.shape[0], (self.spec.name, share, tuple(bottom.shape))
        return share

    def of_whole_batch(self, number: Tensor | int) -> Tensor | int:
        """Return ``number``, counted on this rank, as a number of the whole batch.

        Args:
            number: an int, in which each sample of this rank has an equal part, is scaled (and stays 0 without
                samples). A tensor, which depends on the data, is summed over the ranks by a collective call.
        """
        if not self.context.is_divided:
            return number
        if isinstance(number, Tensor):
            assert self.context.micro_batch is None, f"{self.spec.name}: see counts_by_data"
            return self.total(number)
        share = self.context.share(self.samples)
        assert number % max(share.count, 1) == 0, (self.spec.name, number, share)
        return number // max(share.count, 1) * share.total

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks that run this layer; a collective call (see PassContext)."""
        return self.context.total(tensor, self.spec.name)

    @property
    def in_place(self) -> bool:
        """Whether the text names the same blob as bottom and top."""
        return bool(self.spec.tops) and self.spec.tops[:1] == self.spec.bottoms[:1]

    def close(self) -> None:
        """Release or complete what the layer holds besides memory, such as files. It may be used again."""

    def extra_repr(self) -> str:
        return f"{self.spec.name}: {', '.join(self.spec.bottoms)} -> {', '.join(self.spec.tops)}"


class DataLayer(Layer):
    """A layer without bottoms that gives the samples of a data set, in order, endlessly.

    ``position`` counts the samples that all ranks together have received since the start of training. Snapshots save
    it. Setting it makes the next forward continue there.
    """

    arity: ClassVar[Arity] = Arity(bottoms=(0, 0), tops=(1, None))
    reads = frozenset({"transform_param"})
    family = Family.DATA
    computes = False
    files: ClassVar[tuple[tuple[str, FileKind], ...]] = (("transform_param.mean_file", FileKind.MEAN),)

    @classmethod
    def sample_shape(cls, spec: LayerSpec) -> Shape:
        """Return the shape of a sample of the first top, if the text alone gives it for any data; else ()."""
        return ()

    @classmethod
    def label_shape(cls, batch: int) -> Shape:
        """Return the shape of each top but the first, as far as the text gives it: one number a sample."""
        return (batch,)

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing | None:
        """Return how an image file or a scan becomes a sample; ``None`` if samples are made of something else.

        This reads the data.

        Raises:
            BptError: the data cannot be read.
        """
        return None

    @property
    def epoch(self) -> int:
        """The number of samples in the data set."""
        raise NotImplementedError

    def content(self) -> tuple[str, str]:
        """Return a digest of a part of the data, to compare with other ranks' copies, and the path of the data.

        Two empty texts mean that there is nothing to compare.
        """
        return "", ""

    @property
    def position(self) -> int:
        raise NotImplementedError

    @position.setter
    def position(self, samples: int) -> None:
        raise NotImplementedError

    @property
    def share(self) -> Share:
        """The samples of a whole batch that this rank gets. It may be set between passes."""
        raise NotImplementedError

    @share.setter
    def share(self, share: Share) -> None:
        raise NotImplementedError

    def rotate(self, rotation: ShardRotation) -> None:
        """Rotate the shares of batches from now on. Only a layer with an ``own_rotation`` can do so."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop reading ahead and close the source. The layer is not used afterwards."""


LAYERS: Registry[type[Layer]] = Registry(
    "layer type", {f"bpt.nn.layers.{file}": types for file, types in TYPES_OF.items()}
)


def batch_of(graph: LayerGraph) -> int:
    """Return the batch size in the text of a net: that of its first data layer or of its replacement; 0 if none."""
    sources = [node for node in graph.nodes if not node.bottoms and node.tops]
    sources.sort(key=lambda node: not issubclass(LAYERS[node.type], DataLayer))
    shapes = [graph.edges[node.tops[0]].shape for node in sources]
    return next((shape[0] for shape in shapes if shape and shape[0]), 0)
