"""Read a state_dict of PyTorch, from a file or from the package torchvision, and compare it with an architecture."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from bpt.apps.convert.from_torchvision.input_scaling import RESIZED, RESIZED_BY_FILE
from bpt.apps.convert.from_torchvision.models import IMAGENET_CLASSES, TorchvisionModel
from bpt.base.errors import FileError, RunError, UsageError, first_line_of
from bpt.base.formats import TORCH_OLD, TORCH_ZIP
from bpt.base.native_paths import native_path
from bpt.base.user_files import check_exists, format_of
from bpt.config.proto.blobs import FloatArray
from bpt.graph.layer_spec import Shape

_WRAPPERS = ("state_dict", "model")  # keys under which training scripts store the state_dict
_PARALLEL = "module."  # before each key of nn.DataParallel
_COUNTER = "num_batches_tracked"  # a buffer of BatchNorm that has no use at inference
_WHAT = "a state_dict of PyTorch"
_REMEDY = "write the file by torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class SourceWeights:
    """The weights to convert.

    Attributes:
        path: the file, or words for it.
        tensors: the state_dict.
        resized: the pixels to which the shorter side of an image is resized for these weights.
    """

    path: str
    tensors: Mapping[str, Tensor]
    resized: int = RESIZED


def read_state_dict(path: str) -> SourceWeights:
    """Return the state_dict at ``path``. Only numbers are read: the file cannot run code.

    A state_dict in a checkpoint, under "state_dict" or "model", and one of nn.DataParallel are found, too.

    Raises:
        FileError: the file cannot be read, or contains something else.
    """
    check_exists(path)
    form = format_of(path)
    if form not in (TORCH_ZIP, TORCH_OLD):
        raise FileError(path, f"is {form.what}, not {_WHAT}" if form else f"is not {_WHAT}")
    if tarfile.is_tarfile(path):  # versions of torch before 2.6 run code of such files, in spite of weights_only
        raise FileError(path, f"is a tar archive, not {_WHAT}")
    try:
        found: object = torch.load(native_path(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise FileError(path, f"contains objects other than tensors, which could run code: {_REMEDY}") from None
    except Exception as error:  # a damaged file raises errors of zip, of torch, or of the types of its tensors
        raise FileError(path, f"is damaged, or no state_dict: {_reason(error)}") from None
    name = os.path.splitext(os.path.basename(path))[0]
    return SourceWeights(path, _tensors(found, path), RESIZED_BY_FILE.get(name, RESIZED))


def fetch_state_dict(model: TorchvisionModel) -> SourceWeights:
    """Return the weights that torchvision offers for ``model`` by default; it fetches them once and keeps them.

    Raises:
        UsageError: the package torchvision is missing.
        RunError: torchvision could not fetch them.
    """
    try:
        models = import_module("torchvision.models")
    except Exception as error:  # one for another version of torch raises errors of many kinds
        reason = "is not installed" if isinstance(error, ImportError) else f"cannot be imported ({_reason(error)})"
        raise UsageError(
            f"bpt convert --from torchvision:{model.name} needs --weights, {_WHAT}; it can be left out only with the "
            f"package torchvision, which {reason}"
        ) from None
    weights = models.get_model_weights(model.name).DEFAULT
    try:
        found = weights.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise RunError(
            f"torchvision could not fetch {weights.url}: {_reason(error)}; fetch it by other means, and name the file "
            "by --weights"
        ) from None
    path = f"torchvision's {weights}"
    return SourceWeights(path, _tensors(found, path), weights.transforms().resize_size[0])


def class_count(source: SourceWeights, model: TorchvisionModel) -> int:
    """Return the number of classes of the weights; 1000 if they have no scores, which ``checked`` then reports."""
    scores = source.tensors.get(f"{model.scores}.weight")
    return len(scores) if scores is not None and scores.ndim == 2 and len(scores) else IMAGENET_CLASSES


def check_tensors(
    source: SourceWeights, expected: Mapping[str, Shape], model: TorchvisionModel
) -> dict[str, FloatArray]:
    """Return the tensors that the architecture takes, in single precision.

    Args:
        source: the weights.
        expected: key → shape, in the order of the layers.
        model: the network.

    Raises:
        FileError: a key is missing, has another shape or no finite numbers, or is not one of the architecture's. The
            error names the first such key.
    """
    found: dict[str, FloatArray] = {}
    for key, shape in expected.items():
        tensor = source.tensors.get(key)
        wanted = f'{model.name} has "{key}" of the shape {_show(shape)}'
        if tensor is None:
            raise FileError(source.path, f'lacks "{key}": {wanted}; is it of another network? (--from)')
        if tuple(tensor.shape) != shape:
            raise FileError(
                source.path, f'"{key}" has the shape {_show(tuple(tensor.shape))}: {wanted}; is it of another network?'
            )
        found[key] = _numbers(source.path, key, tensor)
    for key in source.tensors:
        if key not in expected and not key.endswith(f".{_COUNTER}") and not key.startswith(model.left_out or " "):
            last = list(expected)[-1]
            raise FileError(
                source.path,
                f'has "{key}", which {model.name} does not have; its last key is "{last}"; is it of another network?',
            )
    return found


def _tensors(found: object, path: str) -> dict[str, Tensor]:
    """Return the state_dict in the content of a file."""
    for wrapper in _WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(wrapper), Mapping):
            found = found[wrapper]
    if not isinstance(found, Mapping):
        raise FileError(path, f"contains a {type(found).__name__}, not {_WHAT}: {_REMEDY}")
    for key, value in found.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise FileError(path, f'contains "{key}", a {type(value).__name__}, not {_WHAT}: {_REMEDY}')
    if found and all(key.startswith(_PARALLEL) for key in found):
        return {key.removeprefix(_PARALLEL): value for key, value in found.items()}
    return dict(found)


def _numbers(path: str, key: str, tensor: Tensor) -> FloatArray:
    """Return a tensor's numbers in single precision."""
    if not tensor.dtype.is_floating_point:
        raise FileError(
            path, f'"{key}" contains {str(tensor.dtype).removeprefix("torch.")}, not floating-point numbers'
        )
    values: FloatArray = tensor.detach().to(torch.float32).numpy()
    if not np.isfinite(values).all():
        raise FileError(path, f'"{key}" contains NaN or infinity')
    return values


def _reason(error: BaseException) -> str:
    return first_line_of(error).strip().rstrip(".") or type(error).__name__


def _show(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "()"
