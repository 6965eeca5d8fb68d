"""VideoData: clips of videos, and labels (of C3D's Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import DataError, UserError
from bpt.data.clip_source import ClipBatches, ClipSource
from bpt.data.transform import Transform
from bpt.data.video_frames import FrameFolder, VideoFile
from bpt.graph.layer_spec import FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.layers.transform_param import OLD_FIELDS, new_size_of, transform_of, workers_of

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

    field = FIELD
    old_fields = OLD_FIELDS
    reads = frozenset({"transform_param", "data_param"})
    files = ((f"{FIELD}.source", FileKind.CLIP_LIST), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> ClipSource:
        param = spec.param.video_data_param
        return ClipSource(
            path,
            FrameFolder() if param.use_image else VideoFile(),
            root_folder=param.root_folder,
            frames=param.new_length,
            rate=param.sampling_rate,
            size=new_size_of(spec, FIELD),
            channels=3 if param.is_color else 1,
        )

    @classmethod
    def make_batches(cls, spec: LayerSpec, source: ClipSource, share: Share, seed: int) -> ClipBatches:
        sampler, length = cls.sampler_of(spec, [len(source)], seed), spec.param.video_data_param.new_length
        return ClipBatches(source, sampler, _transform_of(spec, seed), share, workers_of(spec), length)

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        param = spec.param.video_data_param
        for name in _OF_A_CAMERA:
            if param.HasField(name):
                why = f"{name} is of SSD's VideoData, which shows a camera; bpt detect reads pictures"
                raise spec.error(why, FIELD, name)
        if not param.new_length or not param.sampling_rate:
            raise spec.error("needs new_length, the frames of a clip, and a sampling_rate of at least 1", FIELD)
        new_size_of(spec, FIELD)
        transform = _transform_of(spec)
        with errors_at(spec, FIELD, "source", kinds=(UserError, DataError)):
            first = cls.open(spec).read(0).image.shape
        with errors_at(spec, "transform_param"):
            channels, *sizes = transform.infer(first)
        return (batch_size, channels // param.new_length, param.new_length, *sizes), (batch_size,)


def _transform_of(spec: LayerSpec, seed: int = 0) -> Transform:
    """Return what is done to a clip as an image with a channel for each frame of each colour."""
    param = spec.param.transform_param
    for name in ("force_color", "force_gray"):
        if param.HasField(name):
            raise spec.error(f"{name} is not for VideoData; give is_color", "transform_param", name)
    return transform_of(spec, seed, frames=spec.param.video_data_param.new_length)
