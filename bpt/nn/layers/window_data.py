"""WindowData: windows of images, foreground and background, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import FileError
from bpt.data.transform import read_mean
from bpt.data.window_batches import WindowBatches, WindowCrop
from bpt.data.window_source import CHANNELS, WindowSource
from bpt.graph.layer_spec import Arity, FileKind, LayerSpec, Shape, shape_text
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.layers.transform_param import OLD_FIELDS, transform_of, workers_of

FIELD = "window_data_param"


@LAYERS.register("WindowData")
class WindowData(PrefetchingDataLayer):
    """Tops: crops (B, 3, crop_size, crop_size) and labels (B,) of windows that the file ``source`` lists.

    ``WindowSource`` shows the file. In each batch ``fg_fraction`` of the windows, the last ones, are foreground (their
    labels 1 and more), the others background (0); which ones is drawn anew for every batch. A window is cut out with
    ``context_pad`` pixels of the crop around it, warped (``crop_mode: "square"``: first made a square), perhaps
    mirrored, and less its mean times ``scale``, which Caffe 1.0 reads in ``window_data_param`` only. Of
    ``transform_param`` it has crop_size (needed), mirror, mean_file or mean_value, and scale, too; ``num_workers``
    threads do the work.
    """

    arity = Arity(bottoms=(0, 0), tops=(2, 2))
    field = FIELD
    old_fields = tuple(name for name in OLD_FIELDS if name != "scale")
    reads = frozenset({"transform_param", "data_param"})  # of data_param prefetch, as in Caffe
    files = ((f"{FIELD}.source", FileKind.WINDOW_FILE), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)
    reads_images = True
    counts_samples = False  # windows are drawn

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> WindowSource:
        param = spec.param.window_data_param
        return WindowSource(
            path,
            root_folder=param.root_folder,
            fg_threshold=param.fg_threshold,
            bg_threshold=param.bg_threshold,
            cache=param.cache_images,
        )

    @classmethod
    def make_batches(cls, spec: LayerSpec, source: WindowSource, share: Share, seed: int) -> WindowBatches:
        own, param = spec.param.window_data_param, spec.param.transform_param
        return WindowBatches(
            source,
            share,
            own.batch_size,
            _foreground(spec),
            _crop(spec),
            _mean(spec),
            own.scale if own.HasField("scale") else param.scale,
            mirror=param.mirror,
            seed=seed,
            workers=workers_of(spec),
        )

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        param = spec.param.window_data_param
        transform_of(spec)  # refuses what no layer can use
        if not 0 <= param.fg_fraction <= 1:
            raise spec.error(f"fg_fraction is {param.fg_fraction:g}, not from 0 to 1", FIELD, "fg_fraction")
        if param.crop_mode not in ("warp", "square"):
            raise spec.error(f'crop_mode is "warp" or "square", not "{param.crop_mode}"', FIELD, "crop_mode")
        if spec.param.transform_param.force_gray:
            raise spec.error("force_gray: WindowData reads all images as color", "transform_param", "force_gray")
        size = _crop(spec).size
        _mean(spec)
        source: WindowSource = cls.open(spec)
        foreground = _foreground(spec)
        for wanted, windows, what in (
            (foreground, source.foreground, f"overlaps by fg_threshold {param.fg_threshold:g} or more"),
            (batch_size - foreground, source.background, f"overlaps by less than bg_threshold {param.bg_threshold:g}"),
        ):
            if wanted and not len(windows):
                raise spec.error(f"a batch needs {wanted} of them, but no window of {param.source} {what}", FIELD)
        return (batch_size, CHANNELS, size, size), (batch_size,)


def _foreground(spec: LayerSpec) -> int:
    """Return how many windows of a batch are foreground."""
    param = spec.param.window_data_param
    return int(np.float32(param.batch_size) * np.float32(param.fg_fraction))


def _crop(spec: LayerSpec) -> WindowCrop:
    size, pad = spec.param.transform_param.crop_size, spec.param.window_data_param.context_pad
    if not size:
        raise spec.error("WindowData needs a crop_size, to which windows are warped", "transform_param", "crop_size")
    if size <= 2 * pad:
        raise spec.error(f"context_pad {pad} leaves nothing of a crop of {size} pixels", FIELD, "context_pad")
    return WindowCrop(size, pad, square=spec.param.window_data_param.crop_mode == "square")


def _mean(spec: LayerSpec) -> NDArray[np.float32]:
    """Return what is subtracted from each crop: the centre of the mean image, or one number for each channel."""
    param = spec.param.transform_param
    size: int = param.crop_size
    if not param.HasField("mean_file"):
        values = np.array(param.mean_value or [0], np.float32)
        if len(values) not in (1, CHANNELS):
            raise spec.error(f"give mean_value once or {CHANNELS} times, not {len(values)} times", "transform_param")
        return np.broadcast_to(values[:, np.newaxis, np.newaxis], (CHANNELS, size, size))
    with errors_at(spec, "transform_param", "mean_file", kinds=(FileError,)):
        mean = read_mean(param.mean_file)
    first = (mean.shape[2] - size) // 2  # of rows, too, as in Caffe
    if len(mean) != CHANNELS or first < 0 or first + size > mean.shape[1]:
        shape = shape_text(mean.shape)
        raise spec.error(f"the mean image is {shape}, the crop {CHANNELS}×{size}×{size}", "transform_param")
    return mean[:, first : first + size, first : first + size]
