"""Reads ``transform_param`` of data layers: the Transform, augmentation, workers, and what old fields do."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import UserError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.augment import Augment
from bpt.data.prefetch import ALONE, Workers, how_many
from bpt.data.transform import Transform
from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.nn.layers.layer_text import errors_at, notice

MOST_WORKERS = 256
OF_ALL_IMAGES = (
    "scale", "mean_file", "mean_value", "crop_size", "crop_h", "crop_w", "force_color", "force_gray",
)  # fmt: skip
"""Fields of ``transform_param`` that are not augmentation: what they do is done to every image, also of a test."""
_OF_ANNOTATED = ("resize_param", "noise_param", "emit_constraint", "distort_param", "expand_param")
OLD_FIELDS = ("scale", "mean_file", "crop_size", "mirror")
"""Transformations that messages of data layers have from the format of 2014."""


def transform_of(spec: LayerSpec, seed: int = 0, *, augments: bool = False, frames: int = 0) -> Transform:
    """Return the Transform that ``transform_param`` describes; a LayerError if it cannot be made.

    Args:
        augments: the layer also does what ``augment_param`` says.
        frames: of a clip; 0: of pictures.
    """
    check_workers(spec)
    for name in _OF_ANNOTATED:
        if spec.param.transform_param.HasField(name):
            raise spec.error(f"{name} is there for layers of type AnnotatedData only", "transform_param", name)
    if spec.param.transform_param.HasField("augment_param") and not augments:
        why = f"augment_param is for Data and ImageData, not {spec.type}"
        raise spec.error(why, "transform_param", "augment_param")
    with errors_at(spec, "transform_param"):
        return Transform(spec.param.transform_param, spec.param.phase, seed, frames)


def augment_of(spec: LayerSpec, seed: int = 0) -> Augment | None:
    """Return what ``augment_param`` asks for.

    ``None``: nothing, or the net is only tested. Raises a LayerError as above.
    """
    param = spec.param.transform_param
    if not param.HasField("augment_param"):
        return None
    augment = Augment(param.augment_param, derive_seed(seed, "augment"))
    with errors_at(spec, "transform_param", "augment_param"):
        augment.check()
        if augment.param.resized_crop and param.HasField("mean_file"):
            raise UserError("augment_param: resized_crop moves pixels, and mean_file has their places; give mean_value")
    return augment if spec.param.phase == pb.TRAIN else None


def shapes_of(
    spec: LayerSpec, batch_size: int, image: Shape, transform: Transform, augment: Augment | None
) -> tuple[Shape, Shape]:
    """Return those of a batch of images and of its labels; a LayerError if the first ``image`` does not fit."""
    with errors_at(spec, "transform_param"):
        shape = transform.infer(augment.shape(image) if augment else image)
    label = (batch_size, augment.param.num_classes) if augment and augment.mixes else (batch_size,)
    return (batch_size, *shape), label


def new_size_of(spec: LayerSpec, field: str) -> Shape:
    """Return ``new_height`` and ``new_width`` of the message ``field``; () if neither is given."""
    size = (getattr(spec.param, field).new_height, getattr(spec.param, field).new_width)
    if bool(size[0]) != bool(size[1]):
        raise spec.error("give new_height and new_width, or neither", field)
    return size if size[0] else ()


def channels_of(spec: LayerSpec) -> int | None:
    """Return the channels that ``transform_param`` forces on images; ``None``: those of each image."""
    param = spec.param.transform_param
    return 3 if param.force_color else 1 if param.force_gray else None


def preprocessing_of(spec: LayerSpec, channels: int, size: Shape) -> pb.ImagePreprocessing:
    """Return how images become samples: resized to ``size`` (height, width), unless that is (), and transformed."""
    found = pb.ImagePreprocessing(channels=channels)
    if size:
        found.height, found.width = size
    for field, value in spec.param.transform_param.ListFields():
        if field.name in OF_ALL_IMAGES:
            own = found.transform_param
            own.mean_value.extend(value) if field.name == "mean_value" else setattr(own, field.name, value)
    return found


def check_workers(spec: LayerSpec) -> None:
    """Raise a LayerError if the text asks for too many workers."""
    if spec.param.transform_param.num_workers > MOST_WORKERS:
        raise spec.error(f"num_workers can be at most {MOST_WORKERS}", "transform_param", "num_workers")


def notice_old_fields(spec: LayerSpec, field: str, old_fields: Sequence[str]) -> None:
    """Log which of ``old_fields`` are set in ``field`` ("data_param"), where they have no effect.

    In networks of the format of 2014 they have, and reading these moves them into ``transform_param``. In a layer of
    today's format Caffe passes over them, so the numbers of its nets are those without them.
    """
    for name in old_fields:
        if getattr(spec.param, field).HasField(name):
            notice(spec, f"{field}.{name} has no effect, as in Caffe; write it in transform_param", field, name)


def workers_of(spec: LayerSpec, *, decoding: bool = True) -> Workers:
    """Return the workers that ``transform_param`` asks for.

    ``ALONE`` if nothing has to be decoded, as one is quicker then.
    """
    wanted = spec.param.transform_param.num_workers
    if decoding:
        return Workers(how_many(wanted))
    if wanted > 1:
        reason = "its records are not encoded, and one thread reads them quickest"
        notice(spec, f"num_workers: {wanted} has no effect: {reason}", "transform_param", "num_workers")
    return ALONE
