"""Files of PyTorch: which are read, and what is said of those that do not fit."""

from __future__ import annotations

import sys
import tarfile
from collections import OrderedDict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.apps.convert.from_torchvision.models import MODELS
from bpt.apps.convert.from_torchvision.state_dict import SourceWeights, fetch_state_dict, read_state_dict
from bpt.apps.convert.from_torchvision.torchvision_files import converted
from bpt.base.errors import FileError, RunError, UsageError
from tests.support.commands import Bpt
from tests.support.torchvision_nets import network


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return dict(network("resnet18", 5).state_dict())


def changed(state: dict[str, Tensor], **changes: Tensor | None) -> dict[str, Tensor]:
    """The same with other tensors; ``None`` leaves one out. ``__`` in a name is a dot."""
    named = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    return {key: tensor for key, tensor in {**state, **named}.items() if tensor is not None}


def refusal(state: dict[str, Tensor], name: str = "resnet18") -> str:
    with pytest.raises(FileError) as caught:
        converted(SourceWeights("w.pth", state), MODELS[name])
    return str(caught.value)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrapper", ["", "state_dict", "model"])
@pytest.mark.parametrize("parallel", [True, False])
def test_files(zipped: bool, wrapper: str, parallel: bool, tmp_path: Path) -> None:
    """Both formats of torch.save, checkpoints of training scripts, and weights of nn.DataParallel."""
    plain = OrderedDict(a=torch.arange(3.0), b=torch.ones(2))
    stored: Any = {f"module.{key}": tensor for key, tensor in plain.items()} if parallel else plain
    path = tmp_path / "w.pth"
    torch.save({wrapper: stored, "epoch": 3} if wrapper else stored, path, _use_new_zipfile_serialization=zipped)
    found = read_state_dict(str(path))
    assert list(found.tensors) == ["a", "b"]
    assert found.tensors["a"].tolist() == [0, 1, 2]
    assert found.resized == 256


class Own:
    """What only a pickle that runs code could hold."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Own(), "contains objects other than tensors, which could run code: write the file by torch.save("),
        ([torch.ones(1)], "contains a list, not a state_dict of PyTorch: write the file by torch.save("),
        ({"epoch": 3}, 'contains "epoch", a int, not a state_dict of PyTorch'),
    ],
)
def test_other_content(content: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save(content, path)
    with pytest.raises(FileError) as caught:
        read_state_dict(str(path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    with pytest.raises(FileError, match=r"w.pth: "):
        read_state_dict(str(path))
    for content, message in ((b"", "is not a state_dict"), (b"\x89HDF\r\n\x1a\n", "is an HDF5 file, not a state_dict")):
        path.write_bytes(content)
        with pytest.raises(FileError, match=message):
            read_state_dict(str(path))
    torch.save({"a": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(FileError, match="is damaged, or no state_dict: "):
        read_state_dict(str(path))


def test_a_tar_archive_that_begins_like_a_file_of_torch(tmp_path: Path) -> None:
    """With it, torch before 2.6 ran code in spite of weights_only."""
    torch.save({}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    magic = (tmp_path / "old.pth").read_bytes()[:15]
    member = tarfile.TarInfo("a" * len(magic))
    header = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    header[: len(magic)] = magic
    header[148:156] = b" " * 8  # the checksum counts as spaces
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "w.pth"
    path.write_bytes(bytes(header) + bytes(1024))
    assert tarfile.is_tarfile(path)
    with pytest.raises(FileError, match=r"w.pth: is a tar archive, not a state_dict"):
        read_state_dict(str(path))


def test_a_key_that_is_missing_or_left_over(state: dict[str, Tensor]) -> None:
    assert refusal(changed(state, layer2__0__bn1__running_var=None)) == (
        'w.pth: lacks "layer2.0.bn1.running_var": resnet18 has "layer2.0.bn1.running_var" of the shape 128; is it of '
        "another network? (--from)"
    )
    assert 'has "aux1.fc.bias", which resnet18 does not have; its last key is "fc.bias"' in refusal(
        changed(state, aux1__fc__bias=torch.ones(1))
    )


def test_the_first_of_several_differences_is_named(state: dict[str, Tensor]) -> None:
    """resnet34 has the keys of resnet18 and more; resnet50's first block has other kernels."""
    assert refusal(state, "resnet34").startswith('w.pth: lacks "layer1.2.conv1.weight"')
    assert '"layer1.0.downsample.0.weight"' in refusal(state, "resnet50")
    assert 'lacks "features.0.weight": alexnet has "features.0.weight" of the shape 64×3×11×11' in refusal(
        state, "alexnet"
    )
    other = changed(state, conv1__weight=torch.ones(64, 1, 7, 7), fc__bias=torch.ones(4))
    assert '"conv1.weight" has the shape 64×1×7×7: resnet18 has "conv1.weight" of the shape 64×3×7×7' in refusal(other)
    assert '"fc.bias" has the shape 4: resnet18 has "fc.bias" of the shape 5' in refusal(
        changed(state, fc__bias=torch.ones(4))
    )


def test_numbers(state: dict[str, Tensor]) -> None:
    """Half precision becomes single; counters need not be there; NaN and whole numbers are refused."""
    halves = {key: tensor.half() for key, tensor in state.items() if not key.endswith("num_batches_tracked")}
    net = converted(SourceWeights("w.pth", halves), MODELS["resnet18"])
    blobs = {layer.name: layer.blobs for layer in net.weights.layers}
    assert np.array_equal(blobs["fc5"][0], halves["fc.weight"].float().numpy())
    assert [blob.shape for blob in blobs["bn2a_branch2b"]] == [(64,), (64,), (1,)]
    assert blobs["bn2a_branch2b"][2].tolist() == [1]
    assert '"bn1.bias" contains NaN or infinity' in refusal(changed(state, bn1__bias=torch.full((64,), torch.nan)))
    assert '"bn1.bias" contains int64, not' in refusal(changed(state, bn1__bias=torch.ones(64, dtype=torch.int64)))


class FakeWeights:
    """What torchvision's enum of weights offers."""

    url = "https://example.org/r18.pth"

    def __init__(self, state: dict[str, Tensor] | OSError) -> None:
        self._state = state
        self.calls: list[dict[str, bool]] = []

    def __str__(self) -> str:
        return "ResNet18_Weights.IMAGENET1K_V1"

    def get_state_dict(self, **how: bool) -> dict[str, Tensor]:
        self.calls.append(how)
        if isinstance(self._state, OSError):
            raise self._state
        return self._state

    def transforms(self) -> object:
        return SimpleNamespace(resize_size=[232])


def install(monkeypatch: pytest.MonkeyPatch, weights: FakeWeights) -> list[str]:
    """Put a package torchvision in place with the weights; return the names that it is asked for."""
    asked: list[str] = []
    models = ModuleType("torchvision.models")

    def get_model_weights(name: str) -> object:
        asked.append(name)
        return SimpleNamespace(DEFAULT=weights)

    models.get_model_weights = get_model_weights  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return asked


def test_the_weights_of_the_package(monkeypatch: pytest.MonkeyPatch, state: dict[str, Tensor]) -> None:
    weights = FakeWeights(state)
    asked = install(monkeypatch, weights)
    found = fetch_state_dict(MODELS["resnet18"])
    assert (asked, weights.calls) == (["resnet18"], [{"progress": False, "check_hash": True}])
    assert (found.path, found.resized) == ("torchvision's ResNet18_Weights.IMAGENET1K_V1", 232)
    assert found.tensors == state


def test_no_package_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(UsageError, match=r"needs --weights, .* package torchvision, which is not installed"):
        fetch_state_dict(MODELS["resnet18"])
    install(monkeypatch, FakeWeights(URLError("no route")))
    with pytest.raises(RunError, match=r"could not fetch https://example.org/r18.pth: .*no route.*--weights"):
        fetch_state_dict(MODELS["resnet18"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "resnet50"], '--from takes torchvision:NAME, for instance torchvision:resnet50, found "resnet50"'),
        (["--from", "torchvision:resnet15"], '--from torchvision:resnet15: bpt does not convert "resnet15"; did you'),
        (["--from", "torchvision:resnet50", "--output", ""], "bpt convert needs --output: a folder, or the beginning"),
        (["--from", "torchvision:resnet50", "--output", "x", "--dialect", "BVLC"], "--dialect BVLC: no Caffe wrote"),
        (["--from", "torchvision:resnet50", "--output", "no/x"], "no/x.caffemodel: cannot be written: "),
        (["--from", "torchvision:resnet50", "--weights", "no.pth", "--output", "x"], "no.pth: "),
        (["--from", "torchvision:resnet50", "mean", "lmdb"], "--from is for weights; bpt convert mean has "),
    ],
)  # fmt: skip
def test_mistakes(words: list[str], message: str, bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = [] if "--output" in words or "mean" in words else ["--output", "x"]
    outcome = bpt("convert", *words, *output)
    assert outcome.status == 2
    assert outcome.error.startswith(message)


def test_unknown_networks_are_refused_with_the_list(bpt: Bpt) -> None:
    outcome = bpt("convert", "--from", "torchvision:densenet121", "--output", "x")
    assert outcome.error == (
        '--from torchvision:densenet121: bpt does not convert "densenet121" (known: resnet18, resnet34, resnet50, '
        "resnet101, resnet152, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn, alexnet, googlenet)"
    )


def test_a_file_of_pytorch_without_from_says_what_to_type(bpt: Bpt, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "w.pth")
    outcome = bpt("convert", "--weights", f"{tmp_path}/w.pth", "--output", f"{tmp_path}/w.caffemodel")
    assert outcome.status == 2
    assert "bpt convert --from torchvision:NAME --weights FILE --output PREFIX" in outcome.error
