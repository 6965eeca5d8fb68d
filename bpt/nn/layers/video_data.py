"""VideoData: clips of videos, and labels (of C3D's Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import DataError, UserError
from bpt.base.seeds import derive_seed
from bpt.data.clip_source import ClipBatches, ClipSource
from bpt.data.sampler import Sampler
from bpt.data.transform import Transform
from bpt.data.video_frames import FrameFolder, VideoFile
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.prefetching import PrefetchingDataLayer, batch_size_of, prefetch_of, seed_of, source_of
from bpt.nn.layers.transform_param import notice_old_fields, transform_of, workers_of
from bpt.nn.pass_context import PassContext

FIELD = "video_data_param"
_OF_A_CAMERA = ("video_type", "device_id", "video_file", "skip_frames")


@LAYERS.register("VideoData")
class VideoData(PrefetchingDataLayer):
    """Tops: clips (B, C, ``new_length``, H, W) and labels (B,) of the videos that ``source`` lists.

    A line of the list has a video, the number of the first frame, and the label; every ``sampling_rate``-th frame from
    there on is one of the clip. A video is a file, its first frame 0, or with ``use_image: true`` a folder of frames,
    ``000001.jpg`` and so on. All else is as in ImageData; crop and mirror are the same for all frames of a clip, and
    ``mean_file`` may hold the mean of clips (1, C, ``new_length``, H, W). (Tran et al., *Learning Spatiotemporal
    Features with 3D Convolutional Networks*, 2015.) SSD's layer of this name shows what a camera sees: that is refused.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    reads = frozenset({"transform_param", "data_param"})
    files = ((f"{FIELD}.source", FileKind.CLIP_LIST), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = spec.param.video_data_param
        seed = seed_of(spec, context)
        skip = derive_seed(seed, "rand_skip") % param.rand_skip if param.rand_skip else 0
        source = open_clips(spec)
        sampler = Sampler([len(source)], shuffle=param.shuffle, seed=seed, skip=skip)
        share = context.split(param.batch_size)
        batches = ClipBatches(source, sampler, _transform_of(spec, seed), share, workers_of(spec), param.new_length)
        super().__init__(spec, context, batches, prefetch_of(spec))
        notice_old_fields(spec, FIELD)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.video_data_param
        batch_size = batch_size_of(spec, FIELD)
        prefetch_of(spec)
        for name in _OF_A_CAMERA:
            if param.HasField(name):
                why = f"{name} is of SSD's VideoData, which shows a camera; bpt detect reads pictures"
                raise spec.error(why, FIELD, name)
        if not param.new_length or not param.sampling_rate:
            raise spec.error("needs new_length, the frames of a clip, and a sampling_rate of at least 1", FIELD)
        if bool(param.new_height) != bool(param.new_width):
            raise spec.error("give new_height and new_width, or neither", FIELD)
        transform, source = _transform_of(spec), open_clips(spec)
        try:
            channels, *sizes = transform.infer(source.read(0).image.shape)
        except DataError as error:
            raise spec.error(str(error), FIELD, "source") from None
        except UserError as error:
            raise spec.error(str(error), "transform_param") from None
        clip = (batch_size, channels // param.new_length, param.new_length, *sizes)
        return LayerShapes((clip, (batch_size,))[: len(spec.tops)])


def _transform_of(spec: LayerSpec, seed: int = 0) -> Transform:
    """Return what is done to a clip as an image with a channel for each frame of each colour."""
    param = spec.param.transform_param
    for name in ("force_color", "force_gray"):
        if param.HasField(name):
            raise spec.error(f"{name} is not for VideoData; give is_color", "transform_param", name)
    return transform_of(spec, seed, frames=spec.param.video_data_param.new_length)


def open_clips(spec: LayerSpec) -> ClipSource:
    """Return the clips that a VideoData layer reads; a LayerError if the list is wrong."""
    param = spec.param.video_data_param
    size = (param.new_height, param.new_width) if param.new_height else ()
    try:
        return ClipSource(
            source_of(spec, FIELD),
            FrameFolder() if param.use_image else VideoFile(),
            root_folder=param.root_folder,
            frames=param.new_length,
            rate=param.sampling_rate,
            size=size,
            channels=3 if param.is_color else 1,
        )
    except UserError as error:
        raise spec.error(str(error), FIELD, "source") from None
