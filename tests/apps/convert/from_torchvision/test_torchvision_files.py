"""Networks of torchvision as Caffe's: the same scores as a plain PyTorch implementation, from the same pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import bpt
from bpt.apps.convert.from_torchvision.models import MODELS
from bpt.apps.convert.from_torchvision.state_dict import SourceWeights
from bpt.apps.convert.from_torchvision.torchvision_files import convert_torchvision, converted
from bpt.apps.convert.layer_arrays import read_weights
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.layout import layout
from bpt.config.proto.text import read_text
from bpt.train.state.preprocessing import beside, read_preprocessing
from tests.support import torchvision_nets
from tests.support.commands import Bpt
from tests.support.net_cases import read_net
from tests.support.paths import ROOT
from tests.support.torchvision_nets import NAMES, normalised, settled

CLASSES = 7


def pixels(side: int, seed: int = 0) -> NDArray[np.uint8]:
    """A smooth picture of random colours (height, width, RGB), different at each border."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), np.uint8)
    smooth: NDArray[np.uint8] = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))
    return smooth


def scores(model: torch.nn.Module, image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What PyTorch says of a picture."""
    with torch.no_grad():
        found: NDArray[np.float32] = model(normalised(torch.from_numpy(image.transpose(2, 0, 1).copy())[None]))[
            0
        ].numpy()
    return found


def test_an_independent_implementation_has_the_same_keys_and_shapes() -> None:
    assert set(MODELS) == set(NAMES)
    for name, model in MODELS.items():
        with torch.device("meta"):
            state = torchvision_nets.network(name).state_dict()
        shapes = {
            key: tuple(tensor.shape)
            for key, tensor in state.items()
            if not key.endswith("num_batches_tracked") and not key.startswith("aux")
        }
        assert model.build(1000).expected == shapes, name


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("resnet18", 75),
        ("resnet50", 75),
        ("resnet101", 75),
        ("googlenet", 75),
        ("alexnet", 224),
        pytest.param("vgg11_bn", 224, marks=pytest.mark.slow),
        pytest.param("vgg16", 224, marks=pytest.mark.slow),
        pytest.param("resnet152", 75, marks=pytest.mark.slow),
    ],
)
def test_scores(name: str, side: int, tmp_path: Path) -> None:
    """At a side of 75 a pooling that rounds in the other direction gives other sizes or other numbers."""
    model = settled(name, CLASSES, side)
    net_of = converted(SourceWeights("w.pth", model.state_dict()), MODELS[name])
    net_of.text.layer[0].input_param.shape[0].dim[2:] = [side, side]
    (tmp_path / "net.prototxt").write_text(layout(net_of.text))
    net = bpt.Net(str(tmp_path / "net.prototxt"), bpt.TEST)
    for layer in net_of.weights.layers:
        for index, values in enumerate(layer.blobs):
            assert net.params[layer.name][index].data.shape == values.shape
            net.params[layer.name][index].data[...] = values
    assert list(net.params) == [layer.name for layer in net_of.weights.layers if layer.blobs]

    image = pixels(side)
    scaling = MODELS[name].scaling.record(256).transform_param
    blue_first = image[:, :, ::-1].astype(np.float32) - np.array(scaling.mean_value, np.float32)
    below = net_of.text.layer[-1].bottom[0]
    net.forward(data=(blue_first * np.float32(scaling.scale)).transpose(2, 0, 1)[None])
    expected = scores(model, image)
    assert expected.std() > 1e-3 * abs(expected).max()
    np.testing.assert_allclose(net.blobs[below].data[0], expected, atol=1e-4 * abs(expected).max())


def test_files(bpt: Bpt, tmp_path: Path) -> None:
    """bpt classify finds how pictures are prepared, and its probabilities are those of PyTorch.

    By hand: 20 convolutions with a BatchNorm and a Scale each, and a classifier; torchvision's 11,689,512 parameters
    less 993 of the 1000 classes of 513 numbers each, plus 2 · 4800 statistics and 20 factors.
    """
    model = settled("resnet18", CLASSES, 64)
    torch.save(model.state_dict(), tmp_path / "r18.pth")
    image = pixels(256)
    Image.fromarray(image).save(tmp_path / "a.png")
    outcome = bpt(
        "convert", "--from", "torchvision:resnet18", "--weights", f"{tmp_path}/r18.pth", "--output", f"{tmp_path}/nets/"
    )
    assert outcome.status == 0, outcome.err
    prefix = f"{tmp_path}/nets/resnet18"
    assert outcome.out.splitlines() == [
        f"{prefix}.caffemodel: 61 layers with 122 blobs, 11,189,723 numbers; read back: all equal",
        f"{prefix}_preprocessing.prototxt: blue, green, red; the shorter side resized to 256, cropped to 224×224, "
        "less 103.53, 116.28, 123.675, times 0.0175",
        f"{prefix}_deploy.prototxt: the architecture of torchvision, 7 classes",
        "Next:",
        f"  bpt classify --model {prefix}_deploy.prototxt --weights {prefix}.caffemodel cat.jpg",
    ]
    outcome = bpt(
        "classify", "--model", f"{prefix}_deploy.prototxt", "--weights", f"{prefix}.caffemodel", "--strict",
        "--top", "1", f"{tmp_path}/a.png",
    )  # fmt: skip
    best = torch.from_numpy(scores(model, image[16:-16, 16:-16])).softmax(0)
    assert outcome.status == 0, outcome.err
    assert f"  {best.max():.4f}  class {best.argmax()}\n" in outcome.out


def test_vgg16_with_1000_classes_is_that_of_the_repository() -> None:
    ours, shipped = MODELS["vgg16"].build(1000).param, read_net("vgg16/deploy.prototxt")
    for net in (ours, shipped):
        for layer in net.layer:
            layer.ClearField("param")
            for param in (layer.convolution_param, layer.inner_product_param):
                param.ClearField("weight_filler")
            for field, message in layer.ListFields():
                if field.message_type and not field.is_repeated and not message.ListFields():
                    layer.ClearField(field.name)
            if layer.HasField("dropout_param") and layer.dropout_param.dropout_ratio == 0.5:
                layer.ClearField("dropout_param")
    assert ours == shipped
    assert [name for name, model in MODELS.items() if model.shipped] == ["vgg16"]


@pytest.mark.parametrize(("depth", "name"), [(50, "resnet50"), (152, "resnet152")])
def test_layers_have_the_names_of_the_authors(depth: int, name: str) -> None:
    """Those of conv1 to fc1000 in the order of their text, although the architecture differs in detail."""
    ours, shipped = MODELS[name].build(1000).param, read_net(f"resnet{depth}/deploy.prototxt")
    assert [layer.name for layer in ours.layer] == [layer.name for layer in shipped.layer]


def test_layers_of_resnet101_have_numbers_in_its_long_stages() -> None:
    names = {layer.name for layer in MODELS["resnet101"].build(1000).param.layer}
    assert {"res2c", "res3a", "res3b1", "res3b3", "res4a", "res4b22", "res5c"} <= names
    assert not {"res2b1", "res3b", "res4b23", "res5b1"} & names


def test_googlenet_has_the_convolutions_of_caffes() -> None:
    ours, shipped = MODELS["googlenet"].build(1000).param, read_net("googlenet/deploy.prototxt")
    kinds = ("Convolution", "InnerProduct", "Pooling", "Concat")
    assert [layer.name for layer in ours.layer if layer.type in kinds] == [
        layer.name for layer in shipped.layer if layer.type in kinds
    ]


def test_a_prefix_and_a_file_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(torchvision_nets.network("resnet18", CLASSES).state_dict(), "w.pth")
    for output, weights, prefix in (
        ("one", "one.caffemodel", "one"),
        ("two_best.h5", "two_best.h5", "two"),
        (".", "./resnet18.caffemodel", "./resnet18"),
    ):
        if output.endswith(".h5"):
            pytest.importorskip("h5py")
        lines = list(convert_torchvision("torchvision:resnet18", "w.pth", output))
        assert lines[-1] == f"  bpt classify --model {prefix}_deploy.prototxt --weights {weights} cat.jpg"
        assert beside(weights) == f"{prefix}_preprocessing.prototxt"
        net = bpt.Net(f"{prefix}_deploy.prototxt", bpt.TEST, weights=weights, strict=True)
        assert net.params["fc7"][0].shape == (CLASSES, 512)
        net.close()
        (tmp_path / weights).unlink()


def test_weights_of_another_recipe_have_another_size(tmp_path: Path) -> None:
    """IMAGENET1K_V2 of torchvision is known by its files' names; all others are resized to 256."""
    model = settled("resnet50", 3, 32)
    for name, side in (("resnet50-11ad3fa6.pth", 232), ("mine.pth", 256)):
        torch.save(model.state_dict(), tmp_path / name)
        list(convert_torchvision("torchvision:resnet50", f"{tmp_path}/{name}", f"{tmp_path}/out"))
        record = read_preprocessing(f"{tmp_path}/out_preprocessing.prototxt").transform_param
        assert (record.resize_param.height, record.resize_param.width, record.crop_size) == (side, side, 224)


def test_the_text_says_what_the_first_convolution_contains(tmp_path: Path) -> None:
    torch.save(torchvision_nets.network("resnet18", CLASSES).state_dict(), tmp_path / "w.pth")
    list(convert_torchvision("torchvision:resnet18", f"{tmp_path}/w.pth", f"{tmp_path}/net"))
    text = (tmp_path / "net_deploy.prototxt").read_text()
    head = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert "torchvision's resnet18, written by bpt convert --from torchvision:resnet18" in head
    assert 'The weights of "conv1" contain both, the order of the channels' in head
    assert "as net_preprocessing.prototxt says" in head


def test_weights_start_a_training(bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A train text with the layers of the deploy text, other classes, and data layers as the text's head says."""
    monkeypatch.chdir(tmp_path)
    torch.save(settled("resnet18", CLASSES, 64).state_dict(), "r18.pth")
    list(convert_torchvision("torchvision:resnet18", "r18.pth", "r18"))
    for label in range(2):
        Image.fromarray(pixels(40, label)).save(f"{label}.png")
    Path("list.txt").write_text("0.png 0\n1.png 1\n")
    net = pb.NetParameter()
    net.CopyFrom(read_text("r18_deploy.prototxt", pb.NetParameter).message)
    data, head, last = net.layer[0], net.layer[-2], net.layer[-1]
    data.Clear()
    data.name, data.type, data.top[:] = "data", "ImageData", ["data", "label"]
    data.image_data_param.source, data.image_data_param.batch_size = "list.txt", 2
    transform = read_preprocessing("r18_preprocessing.prototxt").transform_param
    data.transform_param.scale, data.transform_param.crop_size = transform.scale, 32
    data.transform_param.mean_value.extend(transform.mean_value)
    head.name = head.top[0] = "fc_mine"
    head.inner_product_param.num_output = 2
    last.type, last.bottom[:] = "SoftmaxWithLoss", ["fc_mine", "label"]
    Path("train.prototxt").write_text(layout(net))
    Path("solver.prototxt").write_text(
        'net: "train.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 1 random_seed: 1 snapshot_prefix: "mine"'
    )
    outcome = bpt("train", "--solver", "solver.prototxt", "--weights", "r18.caffemodel")
    assert outcome.status == 0, outcome.err
    assert "Layer fc_mine is not in r18.caffemodel" in outcome.err
    assert "Layer conv1 is not in" not in outcome.err
    before, after = (
        {layer.name: layer.blobs for layer in read_weights(path).layers if layer.blobs}
        for path in ("r18.caffemodel", "mine_iter_1.caffemodel")
    )
    assert before.keys() - after.keys() == {"fc7"}
    for name in ("conv1", "res5b_branch2b", "scale5b_branch2b"):  # without a learning rate, weights stay as they are
        assert np.array_equal(before[name][0], after[name][0])


def test_the_shipped_text_is_named_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The architecture is that of prototxt/vgg16; the weights are zeros, which take little time to write."""
    monkeypatch.chdir(ROOT)
    with torch.device("meta"):
        state = torchvision_nets.network("vgg16").state_dict()
    zeros = {key: torch.zeros(1).expand(tensor.shape) for key, tensor in state.items()}
    monkeypatch.setattr(
        "bpt.apps.convert.from_torchvision.torchvision_files.read_state_dict", lambda path: SourceWeights(path, zeros)
    )
    monkeypatch.setattr(
        "bpt.apps.convert.from_torchvision.torchvision_files.write_compared", lambda weights, target, raw: ["written"]
    )
    lines = list(convert_torchvision("torchvision:vgg16", "vgg16.pth", f"{tmp_path}/vgg16"))
    assert lines[2].startswith("prototxt/vgg16/deploy.prototxt: has the same architecture")
    assert not (tmp_path / "vgg16_deploy.prototxt").exists()
