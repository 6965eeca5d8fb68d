"""The input of an explained net: a scan or an image, prepared as for training."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.apps.classify.classifier_net import ClassifierNet
from bpt.apps.explain.grad_cam import Array
from bpt.base.errors import DataError, FileError, UsageError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.transform import read_mean
from bpt.data.volume_source import normalise
from bpt.train.state.preprocessing import read_preprocessing

Intensity = pb.VolumeDataParameter.Intensity
Sample = NDArray[np.float32]


@dataclass(frozen=True)
class Preprocessing:
    """The transformation ``(normalise(x) - mean) · scale`` of a sample.

    Attributes:
        intensity: the ``Intensity`` by which the sample is normalised.
        mean: one number, one number for each channel, or an array of a sample's shape; ``None``: no mean.
        scale: the factor after the mean is subtracted.
        source: words for where the settings come from, for messages.
    """

    intensity: int
    mean: Array | None = None
    scale: float = 1.0
    source: str = ""

    def __call__(self, sample: Sample, path: object) -> Sample:
        """Return ``sample`` (channels, spatial axes …), which was read from ``path``, transformed.

        Raises:
            FileError: all its numbers are equal, and the intensity divides by their deviation or range.
            UsageError: the number of means is neither 1 nor the number of channels.
        """
        try:
            sample = normalise(sample, self.intensity)
        except DataError as error:
            raise FileError(path, str(error)) from None
        mean = self.mean
        if mean is not None and mean.ndim == 1:
            if len(mean) not in (1, len(sample)):
                raise UsageError(f"{len(mean)} means for the {len(sample)} channels of {path}; give one, or one each")
            mean = mean.reshape(-1, *[1] * (sample.ndim - 1))
        shifted = sample if mean is None else sample - mean
        return np.ascontiguousarray(shifted * np.float32(self.scale), np.float32)

    def __str__(self) -> str:
        parts = [f"intensity {Intensity.Name(self.intensity)}"]
        if self.mean is not None:
            numbers = ", ".join(f"{mean:g}" for mean in self.mean) if self.mean.ndim == 1 else "the mean image"
            parts.append(f"less {numbers}")
        if self.scale != 1:
            parts.append(f"times {self.scale:g}")
        return f"{', '.join(parts)} ({self.source})"


def preprocessing_of(
    net: ClassifierNet, intensity: str = "", mean: Sequence[float] = (), scale: float | None = None
) -> Preprocessing:
    """Return the preprocessing by the flags, else by the net's data layer; Z_SCORE if the net has an Input layer.

    Args:
        net: the net.
        intensity: the name of a ``VolumeDataParameter.Intensity``; "": RAW if ``mean`` or ``scale`` is given.
        mean: the numbers to subtract; (): none.
        scale: the factor; ``None``: none.

    Raises:
        FileError: the data layer's mean file cannot be used.
        LayerError: the mean file does not fit the input.
    """
    if intensity or mean or scale is not None:
        means = np.asarray(mean, np.float32) if mean else None
        factor = 1.0 if scale is None else scale
        return Preprocessing(Intensity.Value(intensity or "RAW"), means, factor, "as the flags say")
    data = net.data
    if data.type == "Input":
        return Preprocessing(pb.VolumeDataParameter.Z_SCORE, source="the default; the net does not say")
    said = f'as layer "{data.name}" says'
    if data.type == "VolumeData":
        return Preprocessing(data.param.volume_data_param.intensity, source=said)
    param = data.param.transform_param
    values: Array | None = np.array(param.mean_value, np.float32) if param.mean_value else None
    if param.HasField("mean_file"):
        values = _centre(read_mean(param.mean_file), net)
    return Preprocessing(pb.VolumeDataParameter.RAW, values, param.scale, said)


def recorded_volume(path: str) -> Preprocessing:
    """Return the preprocessing of scans by the record at ``path``: intensity (by default RAW), mean and scale.

    Raises:
        PrototxtError: the file is missing, or is no record.
        FileError: the record has settings for images.
    """
    record = read_preprocessing(path)
    known = ("channels", "intensity", "transform_param"), ("mean_value", "scale")
    fields = [
        field.name
        for message, names in zip((record, record.transform_param), known, strict=True)
        for field, _ in message.ListFields()
        if field.name not in names
    ]
    if fields or record.channels > 1:
        raise FileError(
            path, f"{', '.join(fields) or 'channels'} is for images; a scan takes intensity, mean_value and scale"
        )
    param = record.transform_param
    values = np.array(param.mean_value, np.float32) if param.mean_value else None
    return Preprocessing(record.intensity, values, param.scale, f"as {path} says")


def _centre(mean: Sample, net: ClassifierNet) -> Sample:
    """Return the centre of the mean image, in the size of the net's input."""
    wanted = net.input.shape[1:]
    starts = [(have - want) // 2 for have, want in zip(mean.shape, wanted, strict=False)]
    if len(mean.shape) != len(wanted) or mean.shape[0] != wanted[0] or min(starts) < 0:
        message = f"the mean image has shape {mean.shape}, the net's input {wanted}"
        raise net.data.error(message, "transform_param", "mean_file")
    return mean[tuple(slice(start, start + want) for start, want in zip(starts, wanted, strict=True))]


class ExplainedSubject(ABC):
    """The subject of an explanation: a scan, or an image.

    Attributes:
        sample: the net's input, (channels, spatial axes …).
        positions: for each axis, the places of the points of the subject's own grid, in the net's voxels.
        description: a line about the file and its preprocessing.
    """

    sample: Sample
    positions: tuple[Array, ...]
    description: str

    @abstractmethod
    def outputs(self, prefix: str) -> tuple[Path, ...]:
        """Return the files that ``write`` will write."""

    @abstractmethod
    def where(self, place: Sequence[int]) -> str:
        """Return a place of its own grid in words."""

    @abstractmethod
    def write(self, prefix: str, heat: Sample, place: Sequence[int], title: str) -> None:
        """Write the map ``heat`` on its own grid, with its maximum at ``place``.

        Raises:
            WriteError: a file could not be written.
        """


def peak(heat: Array) -> tuple[int, ...]:
    """Return the place of the maximum of ``heat``; of several such places, the one nearest to their middle."""
    places = np.argwhere(heat >= heat.max() * (1 - 1e-6))
    middle = places.mean(0)
    nearest = places[np.square(places - middle).sum(1).argmin()]
    return tuple(int(index) for index in nearest)


def prefix_of(output: str, path: str) -> str:
    """Return the prefix of output files: ``output`` without its suffix, or the input's name and ``_cam``."""
    given = output or os.path.basename(path)
    for ending in (".nii.gz", ".nii", ".hdr", ".img", ".png", ".jpg", ".jpeg", ".bmp"):
        if given.lower().endswith(ending) and len(given) > len(ending):
            given = given[: -len(ending)]
            break
    return given if output else f"{given}_cam"


def check_outputs(outputs: Sequence[Path], path: str) -> None:
    """Raise a UsageError if a file cannot be written or would replace the input, before the work is done."""
    for output in outputs:
        if not output.parent.is_dir():
            raise UsageError(f'--output: there is no folder "{output.parent}"')
        if os.path.realpath(output) == os.path.realpath(path):
            raise UsageError(f'--output: "{output}" is the input itself; give another prefix')
