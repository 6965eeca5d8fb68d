"""LayerSpec, a layer of a network text, and LayerType, the facts of its type about shapes. No tensors here."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bpt.base.errors import LayerError
from bpt.base.origin import Origin
from bpt.config.proto import bpt_pb2 as pb

Shape = tuple[int, ...]
FieldPath = tuple[str | int, ...]


def count(shape: Sequence[int]) -> int:
    """Return the number of elements of ``shape``; 1 for a scalar, as in Caffe."""
    return math.prod(shape)


def shape_text(shape: Sequence[int]) -> str:
    """Return ``shape`` as text for messages, such as "3×224×224"."""
    return "×".join(map(str, shape))


@dataclass(frozen=True, eq=False)
class LayerSpec:
    """One ``layer { … }`` of a network text.

    ``param`` is read-only by agreement. ``origins`` has the places of its fields in the text: ``()`` is the layer
    itself, ``("type",)`` its type. It is empty for layers made in memory. ``written_bottoms`` are the bottoms' names
    in the text after ``insert_splits`` has renamed them.
    """

    param: pb.LayerParameter
    origins: Mapping[FieldPath, Origin] = field(default_factory=dict)
    written_bottoms: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.param.name

    @property
    def type(self) -> str:
        return self.param.type

    @property
    def bottoms(self) -> tuple[str, ...]:
        return tuple(self.param.bottom)

    @property
    def bottom_names(self) -> tuple[str, ...]:
        """The names of the bottoms in the text, for messages."""
        return self.written_bottoms or self.bottoms

    @property
    def tops(self) -> tuple[str, ...]:
        return tuple(self.param.top)

    def origin(self, *path: str | int) -> Origin | None:
        """Return the place of the field at ``path``, or of the nearest message around it whose place is known."""
        while path and path not in self.origins:
            path = path[:-1]
        return self.origins.get(path)

    def error(self, message: str, *path: str | int) -> LayerError:
        """Return a LayerError about this layer, with the place of the field ``path`` (``"pooling_param", "pad"``)."""
        return LayerError(self.name, message, self.origin(*path))


@dataclass(frozen=True)
class ParamSpec:
    """A parameter blob that a layer owns: its shape, its filler, and whether a solver may train it."""

    shape: Shape
    filler: pb.FillerParameter
    learnable: bool = True  # False: BatchNorm's running statistics (Caffe forces their lr_mult to 0)


@dataclass(frozen=True)
class LayerShapes:
    """The tops' shapes and the parameters that a layer type infers from its bottoms' shapes.

    ``forward_only`` says why the layer cannot run backward; "": it can. Training through such a layer is refused.
    """

    tops: tuple[Shape, ...]
    params: tuple[ParamSpec, ...] = ()
    forward_only: str = ""


@dataclass(frozen=True)
class Arity:
    """The numbers of bottoms and tops that a layer type takes (Caffe: ExactNumBottomBlobs and similar)."""

    bottoms: tuple[int, int | None] = (1, 1)  # at least, at most (None: any number)
    tops: tuple[int, int | None] = (1, 1)
    as_many_tops_as_bottoms: bool = False
    auto_tops: bool = False  # missing tops are added without a name (loss layers)


class FileKind(enum.Enum):
    """The kind of file that a field of a layer's text names, in words for messages."""

    LMDB = "LMDB"
    HDF5_LIST = "HDF5 list"
    VOLUME_LIST = "list of volumes"
    IMAGE_LIST = "list of images"
    CLIP_LIST = "list of clips"
    WINDOW_FILE = "window file"
    MATRIX = "infogain matrix"
    MEAN = "mean image"
    LABEL_MAP = "label map"  # names of classes
    FOLDER = "folder"  # the folder from which the paths of a list start


class Autocast(enum.Enum):
    """The precision of a layer in a net of half precision: the three lists of torch's autocast."""

    HALF = "half"  # half precision: products, summed in single precision
    WIDEST = "widest"  # the widest precision of its bottoms
    FULL = "full"  # the precision of the run


class LayerType(Protocol):
    """The facts of a layer type that the graph needs; the classes in ``bpt.nn.layers`` provide them."""

    arity: Arity
    is_loss: bool  # the first top has loss_weight 1 unless the text says otherwise
    # Each element of its one top depends on the same element of its one bottom only, without parameters. So it can run
    # on a slice of any axis. (A layer that draws random numbers must know the slice.)
    elementwise: bool
    # The fields of its text that name the files that it reads ("data_param.source"), and the kinds of these files.
    files: tuple[tuple[str, FileKind], ...]
    multiplies: bool  # most of its operations are those of a matrix product
    is_view: bool  # its tops share the memory of its bottom, perhaps in other shapes, in Caffe as here

    def infer(self, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        """Return the shapes of tops and parameters; raise a LayerError that shows the shapes if they do not fit."""

    def flops(self, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        """Return the floating-point operations of one forward pass (a multiply-add counts as two)."""

    def saved_for_backward(self, spec: LayerSpec) -> float:
        """Return how many numbers training keeps until the backward pass, for each number of the layer's tops."""

    def autocast(self, spec: LayerSpec) -> Autocast:
        """Return the precision in which the layer computes in a run of half precision."""

    def gives_constants(self, spec: LayerSpec) -> bool:
        """Return whether the layer has no bottoms and the same tops in each pass."""

    def allow_force_backward(self, bottom: int) -> bool:
        """Return whether ``force_backward`` may ask for a gradient of this bottom (labels: no)."""


class LayerTypes(Protocol):
    """Layer types by name; an unknown name is a UserError (``bpt.nn.layers.LAYERS`` is one)."""

    def __getitem__(self, name: str, /) -> LayerType: ...


def check_arity(spec: LayerSpec, arity: Arity) -> None:
    """Raise a LayerError unless ``spec`` has as many bottoms and tops as its type takes."""
    for word, names, (least, most) in (
        ("bottom", spec.bottom_names, arity.bottoms),
        ("top", spec.tops, arity.tops),
    ):
        if word == "top" and arity.auto_tops:
            least = 0
        if len(names) < least or (most is not None and len(names) > most):
            if most == least:
                wanted = f"{least}"
            elif most is None:
                wanted = f"at least {least}"
            else:
                wanted = f"{least} to {most}"
            given = f"{len(names)} ({', '.join(names)})" if names else "none"
            raise spec.error(f"{spec.type} takes {wanted} {word}{'s' * (wanted != '1')}, given {given}", word)
    if arity.as_many_tops_as_bottoms and len(spec.tops) != len(spec.bottoms):
        raise spec.error(
            f"{spec.type} takes as many tops as bottoms, given {len(spec.tops)} and {len(spec.bottoms)}", "top"
        )
