"""The base of all layers, their life cycle, and the registry of layer types.

Life of a layer:

1. ``infer`` (a classmethod) checks the text against the bottoms' shapes and tells the shapes of tops
   and parameters. It allocates nothing, so a plan or a summary of a net of any size is cheap.
2. ``Layer(spec, context)`` makes the layer; the Net then tells it the shapes of its bottoms (``set_up``) and gives it
   its parameters as ``self.blobs``, in Caffe's order and shapes, filled by the text's fillers.
3. ``forward(*bottoms)`` computes the tops from the bottoms, in Caffe's arithmetic. Gradients come from
   autograd, or from a ``torch.autograd.Function`` where Caffe's rule differs from calculus or ours is
   faster. Bottoms are never modified, except through the in-place rule of ``Layer.in_place``.

How many bottoms and tops a type takes stands in ``arity`` and is checked by the graph, never by a layer.

With many ranks, shapes in ``infer`` are those of the whole batch, and ``forward`` has this rank's samples (axis 0 of
all bottoms), perhaps none. A layer must give each sample what it would get in the whole batch: ``share_of`` tells which
samples these are, ``of_whole_batch`` turns what is counted here into what is counted on all ranks, and a layer
that cannot do without the others says so in ``mixes_samples``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from bpt.base.registry import Registry
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Arity, Autocast, FileKind, LayerShapes, LayerSpec, Shape, count
from bpt.graph.share import ShardRotation, Share, whole_batch
from bpt.nn.layers.channel_affine import ChannelAffine, Weights
from bpt.nn.layers.type_table import TYPES_OF
from bpt.nn.pass_context import CurrentPass, PassContext


class Family(enum.Enum):
    """What a layer is in the eyes of a reader of networks, in words for a drawing's legend."""

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


class Layer(nn.Module):
    """One layer of a net: what is computed, not where or when."""

    arity: ClassVar[Arity] = Arity()
    is_loss: ClassVar[bool] = False
    # So many of the tops, the first ones, are sums over samples divided by a number of the whole batch, so that what
    # the ranks have of them adds up. The other tops have axis 0 for the samples.
    sums_over_samples: ClassVar[int] = 0
    # The tops, by place, whose rows (axis 2) are a list: each names its sample in column 0, counted from the first of
    # those that are here, and there are as many as the data say.
    listed: ClassVar[tuple[int, ...]] = ()
    # Why its samples cannot be apart, neither on different ranks nor in micro-batches: a clause, as ``mixes_samples``
    # returns it. Empty if that is no matter of the type alone.
    whole_batch_only: ClassVar[str] = ""
    # Whether a pass may make fewer rows (axis 0) than ``infer`` says: the layers behind it are asked again each time.
    rows_by_data: ClassVar[bool] = False
    # Whether what it makes of a batch is a matter of that batch alone, also where it mixes its samples: then whole
    # batches may be on different ranks (``batch_scope: REPLICA``). Not so for losses, whose numbers are of all ranks'.
    within_batch: ClassVar[bool] = False
    # Whether each element of its one top is made of the same element of its one bottom, without parameters: it can
    # run on a slice of any axis, if only ``context.columns`` tells which one.
    elementwise: ClassVar[bool] = False
    # Whether its tops are its bottom's numbers in its bottom's memory, perhaps in other shapes, in Caffe as here.
    is_view: ClassVar[bool] = False
    # Whether, unless ``mixes_samples``, it gives any samples what it would give them among others, without asking what
    # other samples there are (``share_of``) or other ranks: it can run on slices of axis 0, side by side.
    sample_independent: bool = False
    # Whether it never calls other ranks, though it is not ``sample_independent``: other layers' calls may overtake it.
    no_collectives: bool = False
    # Whether its operations are mostly those of a product of matrices, at which a processor is fastest.
    multiplies: ClassVar[bool] = False
    # In which numbers it computes where a run is in half precision; unless said otherwise (``autocast``), those that
    # multiply in half precision, and those that move numbers only in those that come.
    numbers: ClassVar[Autocast | None] = None
    # Which of its blobs is added to whole channels (axis 1), so that a BatchNorm behind it takes that away again.
    bias_blob: ClassVar[int | None] = None
    # Whether its first top is new memory that no backward pass reads, so that the layer behind may write over it.
    top_is_free: bool = False
    # The bottoms, by place, over which it can write its one top, by ``overwrite``.
    overwrites: tuple[int, ...] = ()
    # Whether another pass of the same bottoms, in the same context, makes the same tops and leaves nothing else behind.
    repeatable: bool = True
    # Whether it can make of its one bottom what a layer with a ``channel_affine`` behind it would make of its top.
    folds_affine: bool = False
    # The fields of its text that say where files lie that it reads, and what these are: ``bpt doctor`` looks at them.
    files: ClassVar[tuple[tuple[str, FileKind], ...]] = ()
    computes: ClassVar[bool] = True  # False: it moves numbers only
    family: ClassVar[Family] = Family.OTHER
    reads_images: ClassVar[bool] = False  # its samples are images: (channels, height, width)
    # The field of LayerParameter that holds its settings, if no message there is named after its type.
    settings: ClassVar[str | None] = None
    # Fields of LayerParameter that it reads, or answers itself, beside the settings of its type.
    reads: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__()
        self.spec = spec
        self._pass = CurrentPass(context)
        self.blobs = nn.ParameterList()
        self._blob_shapes: list[Shape] = []
        self.samples = 0  # of the whole batch, by the graph: axis 0 of the first bottom; the Net sets it
        self.train(spec.param.phase == 0)  # pb.TRAIN

    @property
    def context(self) -> PassContext:
        """Of the pass under way."""
        return self._pass.context

    def follow(self, current: CurrentPass) -> None:
        """See the passes of a net from now on; the Net calls this."""
        self._pass = current

    @property
    def own_rotation(self) -> ShardRotation | None:
        """When a net whose first data this layer has rotates its shares; ``None``: it has none of its own."""
        return None

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        """Shapes of tops and parameters for these bottoms.

        Raises:
            LayerError: the text or the shapes do not fit; by ``spec.error(message, *field_path)``. A
                message about shapes shows them.
        """
        raise NotImplementedError

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        """Floating-point operations of a forward pass; by default one for each element of the tops."""
        return sum(map(count, tops)) if cls.computes else 0

    @classmethod
    def reread(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        """Elements of blobs that backward must read again, besides diffs and parameters; by default all bottoms'.

        0 where the diffs of the bottoms do not depend on the bottoms: the layer is linear in them.
        """
        return sum(map(count, bottoms)) if cls.computes and not cls.is_view else 0

    @classmethod
    def keeps(cls, spec: LayerSpec) -> float:
        """Return for each number of its tops, how many training keeps for it until it has run backward.

        By default 1, the top itself, which the layer behind reads again. A layer that can write its top over a
        bottom, or is folded into the layer before, keeps none of its own (``bpt.nn.fusion``).
        """
        return 0.0 if cls.overwrites else 1.0

    @classmethod
    def autocast(cls, spec: LayerSpec) -> Autocast:
        """In which numbers it computes where a run is in half precision."""
        if cls.numbers is not None:
            return cls.numbers
        moves = not cls.computes and cls.arity.bottoms[0] > 0
        return Autocast.HALF if cls.multiplies else Autocast.WIDEST if moves else Autocast.FULL

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        """Return whether this bottom can get a diff, be it asked for by layers before it or by ``force_backward``.

        Asked by its place from the front (0, 1, …) and by that from the end (-1, -2, …): one no is enough.
        """
        return True

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        """Return why the samples of these bottoms (axis 0) cannot be on different ranks; empty if they can.

        BatchNorm is let pass: it normalises by a rank's own samples, as Caffe does, unless it is told to ``sync``.

        Returns:
            A clause to go on from: ``"softmax_param { axis: 0 } runs along the samples"``.
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
        """Return why the samples of a batch cannot come in micro-batches, one behind the other; empty if they can.

        ``of_whole_batch`` of a number that depends on the data needs all samples at the same time.

        Returns:
            A clause to go on from: ``"ignore_label leaves labels out"``.
        """
        return cls.whole_batch_only

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        """Return what is worth saying of its settings in a drawing, the most telling first.

        Args:
            axes: spatial ones of its top.
        """
        return ()

    @classmethod
    def gives_constants(cls, spec: LayerSpec) -> bool:
        """Return whether its tops are the same in each pass, without bottoms, as long as its parameters are."""
        return False

    @classmethod
    def normalises_by_batch(cls, spec: LayerSpec) -> bool:
        """Whether it normalises by statistics of the samples that it sees, so that it makes a difference which."""
        return False

    @classmethod
    def syncs(cls, spec: LayerSpec, by_default: bool) -> bool:
        """Return whether these are the statistics of the whole batch. ``by_default``: as ``parallel_param`` says."""
        return False

    @property
    def hidden_state(self) -> tuple[Tensor, ...]:
        """What a pass has left for the next one beside blobs, such as the states of a recurrent layer; may be set.

        (): nothing, so that the next pass is like a first one.
        """
        return ()

    @hidden_state.setter
    def hidden_state(self, states: tuple[Tensor, ...]) -> None:
        assert not states, f"{self.spec.name}: {self.spec.type} keeps nothing"

    def set_up(self, bottoms: Sequence[Shape]) -> None:
        """Get ready for bottoms of these shapes, of the whole batch (Caffe: ``LayerSetUp``); the Net calls it once."""

    def add_blob(self, values: nn.Parameter, shape: Shape) -> None:
        """Give the layer its next parameter blob; the Net calls this."""
        self.blobs.append(values)
        self._blob_shapes.append(shape)

    def blob(self, index: int) -> Tensor:
        """Parameter blob ``index`` in this layer's shape.

        The values may belong to another layer; under ``share_mode: PERMISSIVE`` even in another shape.
        """
        values: Tensor = self.blobs[index]
        shape = self._blob_shapes[index]
        return values if values.shape == shape else values.view(shape)

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the tops: a tensor if there is one, else a tuple of them in order."""
        raise NotImplementedError

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        """Return what ``forward`` gives, in the memory of bottom ``place``, one of ``overwrites``."""
        raise NotImplementedError

    def channel_affine(self) -> ChannelAffine | None:
        """Return what it does to its one bottom, if that is factors and summands by channel as things are now."""
        return None

    def folded(self, affine: ChannelAffine) -> Weights:
        """The weights by which ``forward_by`` does what this layer, which ``folds_affine``, and one behind it do."""
        raise NotImplementedError

    def forward_by(self, weights: Weights, bottom: Tensor) -> Tensor:
        """Return the top by ``folded`` weights."""
        raise NotImplementedError

    def share_of(self, bottom: Tensor) -> Share:
        """Return which samples of the whole batch ``bottom``, this layer's first, has on this rank."""
        if not self.context.is_divided:
            return whole_batch(bottom.shape[0] if bottom.shape else 1)
        share = self.context.share(self.samples)
        assert share.count == bottom.shape[0], (self.spec.name, share, tuple(bottom.shape))
        return share

    def of_whole_batch(self, number: Tensor | int) -> Tensor | int:
        """Return what ``number`` is for the whole batch.

        Args:
            number: an int, that each of this rank's samples has an equal part in, is scaled (and stays 0 without
                samples). A tensor, that depends on the data, is summed over the ranks: a collective call.
        """
        if not self.context.is_divided:
            return number
        if isinstance(number, Tensor):
            assert self.context.micro_batch is None, f"{self.spec.name}: see counts_by_data"
            return self.context.total(number)
        share = self.context.share(self.samples)
        assert number % max(share.count, 1) == 0, (self.spec.name, number, share)
        return number // max(share.count, 1) * share.total

    @property
    def in_place(self) -> bool:
        """Whether the text names the same blob as bottom and top."""
        return bool(self.spec.tops) and self.spec.tops[:1] == self.spec.bottoms[:1]

    def close(self) -> None:
        """Give back, or complete, what it holds besides memory: files. It may be used again."""

    def extra_repr(self) -> str:
        return f"{self.spec.name}: {', '.join(self.spec.bottoms)} -> {', '.join(self.spec.tops)}"


class DataLayer(Layer):
    """A layer without bottoms that hands out the samples of a data set, in order, for ever.

    ``position`` counts the samples handed out since the start of training, to all ranks together. It is saved in
    snapshots; setting it makes the next forward continue there.
    """

    arity: ClassVar[Arity] = Arity(bottoms=(0, 0), tops=(1, None))
    reads = frozenset({"transform_param"})
    family = Family.DATA
    computes = False
    files: ClassVar[tuple[tuple[str, FileKind], ...]] = (("transform_param.mean_file", FileKind.MEAN),)

    @classmethod
    def sample_shape(cls, spec: LayerSpec) -> Shape:
        """Return the shape of a sample of the first top, if the text alone tells it, wherever the data are; else ()."""
        return ()

    @classmethod
    def label_shape(cls, batch: int) -> Shape:
        """The shape of each top but the first, as far as the text tells it: one number a sample of the ``batch``."""
        return (batch,)

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing | None:
        """Return how an image file becomes a sample; ``None`` if samples are not made of images. A look at the data
        tells.

        Raises:
            BptError: the data cannot be read.
        """
        return None

    @property
    def epoch(self) -> int:
        """The number of samples in the data set."""
        raise NotImplementedError

    def content(self) -> tuple[str, str]:
        """Return a digest of some of what it reads, to compare with other ranks' copies, and its path; two empty
        texts: there
        is nothing to compare.
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
        """Which samples of a whole batch this rank gets; may be set between passes."""
        raise NotImplementedError

    @share.setter
    def share(self, share: Share) -> None:
        raise NotImplementedError

    def rotate(self, rotation: ShardRotation) -> None:
        """Rotate the shares of batches from now on. Only for layers with an ``own_rotation``."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop reading ahead and close the source. The layer is not used afterwards."""


LAYERS: Registry[type[Layer]] = Registry(
    "layer type", {f"bpt.nn.layers.{file}": types for file, types in TYPES_OF.items()}
)


def batch_of(graph: LayerGraph) -> int:
    """Return the batch size that the text of a net says: that of its first data layer, or of what stands for one.

    0: none.
    """
    sources = [node for node in graph.nodes if not node.bottoms and node.tops]
    sources.sort(key=lambda node: not issubclass(LAYERS[node.type], DataLayer))
    shapes = [graph.edges[node.tops[0]].shape for node in sources]
    return next((shape[0] for shape in shapes if shape and shape[0]), 0)
