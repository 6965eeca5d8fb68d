"""LayerGraph: a net description after phase filtering, as immutable data. No tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import without
from bpt.graph.layer_spec import LayerSpec, LayerType, Shape, count

AUTOMATIC = "(automatic)"  # Caffe's name for a top that the text leaves out


@dataclass(frozen=True)
class Edge:
    """One version of a blob: the values that one layer wrote under that name.

    An in-place layer makes a new version of its bottom's blob. So an edge is written once and, after
    ``insert_splits``, read at most once.
    """

    index: int
    blob: str
    shape: Shape
    producer: int  # layer index
    consumer: int | None  # layer index; None: an output of the net
    loss_weight: float = 0.0


@dataclass(frozen=True)
class Param:
    """One parameter blob of one layer. ``owner`` is the index of the Param whose values it uses."""

    index: int
    layer: int
    blob: int  # which of the layer's blobs
    shape: Shape
    filler: pb.FillerParameter
    name: str  # the text's ParamSpec name, or ""
    owner: int
    lr_mult: float
    decay_mult: float
    learnable: bool

    @property
    def shared(self) -> bool:
        return self.owner != self.index


@dataclass(frozen=True)
class LayerNode:
    """One layer in its place in the graph. Numbers are indices into the graph's edges and params."""

    index: int
    spec: LayerSpec
    bottoms: tuple[int, ...]
    tops: tuple[int, ...]
    params: tuple[int, ...]
    flops: int
    needs_backward: bool
    bottom_needs_diff: tuple[bool, ...]  # one a bottom: whether its diff is wanted
    layer_type: LayerType  # the facts of its type

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def type(self) -> str:
        return self.spec.type

    def without_places(self) -> pb.LayerParameter:
        """Return the layer's text without paths of files, which may differ from host to host."""
        return without(self.spec.param, *(path for path, _ in self.layer_type.files))


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """Layers in order of execution, the edges between them and their parameters.

    ``source`` is the path of its text, for messages (``None``: made in memory).
    """

    name: str
    phase: int  # pb.TRAIN or pb.TEST
    nodes: tuple[LayerNode, ...]
    edges: tuple[Edge, ...]
    params: tuple[Param, ...]
    force_backward: bool = False
    debug_info: bool = False
    source: str | None = None

    def __len__(self) -> int:
        """Return the number of layers, with Splits."""
        return len(self.nodes)

    @cached_property
    def blobs(self) -> dict[str, Edge]:
        """The last version of each blob by name, in order of first appearance (Caffe's ``blob_names``)."""
        return {edge.blob: edge for edge in self.edges}

    @cached_property
    def input_edges(self) -> tuple[Edge, ...]:
        """The blobs that the caller sets: the tops of Input layers."""
        return tuple(edge for edge in self.edges if self.nodes[edge.producer].type == "Input")

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the blobs that the caller sets."""
        return tuple(edge.blob for edge in self.input_edges)

    @cached_property
    def outputs(self) -> tuple[Edge, ...]:
        """The named blobs that no layer reads, sorted by name as in Caffe."""
        ends = (edge for edge in self.edges if edge.consumer is None and edge.blob != AUTOMATIC)
        return tuple(sorted(ends, key=lambda edge: edge.blob))

    @cached_property
    def losses(self) -> tuple[Edge, ...]:
        """The edges that count towards the loss, in order."""
        return tuple(edge for edge in self.edges if edge.loss_weight)

    @cached_property
    def learnable(self) -> tuple[Param, ...]:
        """The params that a solver trains, each shared one once, in Caffe's order of ``learnable_params``."""
        return tuple(param for param in self.params if not param.shared)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """The index of each layer by name."""
        return {node.name: node.index for node in self.nodes}

    @property
    def num_parameters(self) -> int:
        """The number of elements of all parameter blobs, each shared blob once."""
        return sum(count(param.shape) for param in self.learnable)

    @property
    def flops(self) -> int:
        """The number of floating-point operations of one forward pass."""
        return sum(node.flops for node in self.nodes)
