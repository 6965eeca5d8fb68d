"""Pictures are prepared as those that a net was trained with, and classified as its test does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import bpt
from bpt.apps.classify.classifier_net import classifier_net
from bpt.apps.pictures.image_input import image_input
from bpt.apps.pictures.named_pictures import NamedPicture, pictures
from bpt.base.errors import FileError, UsageError, UserError
from bpt.cli.main import main
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.lmdb_file import LmdbSource
from bpt.data.transform import write_mean
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.train.state.preprocessing import read_preprocessing, write_preprocessing
from tests.support.commands import out_of
from tests.support.paths import GOLDEN, PROTOTXT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_accuracy_of_classified_files_is_that_of_the_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lmdb = GOLDEN / "lmdb" / "digits_test_lmdb"
    text = (PROTOTXT / "lenet" / "train_val.prototxt").read_text()
    text = text.replace("data/digits/train_lmdb", str(GOLDEN / "lmdb" / "digits_train_lmdb"))
    (folder / "net.prototxt").write_text(
        text.replace("data/digits/test_lmdb", str(lmdb)).replace("size: 90", "size: 10")
    )
    (folder / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 12 random_seed: 1 '
        'snapshot_prefix: "lenet" solver_mode: CPU'
    )
    source = LmdbSource(str(lmdb))
    lines = []
    for index in range(len(source)):
        sample = source.read(index)
        Image.fromarray(sample.image[0]).save(folder / f"{index}.png")
        lines.append(f"{index}.png {int(sample.label)}\n")
    source.close()
    (folder / "list.txt").write_text("".join(lines))
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    weights = "lenet_iter_12.caffemodel"
    main(["test", "--model", "net.prototxt", "--weights", weights, "--iterations", str(len(lines) // 10)])
    tested = re.findall(r"^.*\] accuracy = (.*)$", capsys.readouterr().err, re.MULTILINE)[-1]

    deploy = str(PROTOTXT / "lenet" / "deploy.prototxt")
    for model in (deploy, "net.prototxt"):  # by the record beside the snapshot, and by the data layer
        told = out_of(capsys, "classify", "--model", model, "--weights", weights, "--top", "1", "list.txt")
        assert f"accuracy = {float(tested):.6g} " in told
        assert "gray, resized to 28×28, cropped to 28×28, times 0.00390625" in told
    told = out_of(capsys, "classify", "--model", deploy, "--weights", weights, "--json", "--top", "10", "list.txt")
    answers = [json.loads(line)["classes"] for line in told.splitlines() if '"classes"' in line]
    with bpt.Net("net.prototxt", bpt.TEST, weights=weights) as whole:  # what "bpt test" runs, image by image
        scores = np.concatenate([whole.forward() and whole.blobs["ip2"].data.copy() for _ in range(len(lines) // 10)])
    assert len(answers) == len(scores) == len(lines)
    for answer, expected in zip(answers, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), strict=True):
        found = {each["class"]: each["probability"] for each in answer}
        assert [found[number] for number in range(10)] == pytest.approx(expected.tolist(), abs=1e-4)
        assert answer[0]["class"] == int(expected.argmax())
    (folder / "cut.png").write_bytes(
        (folder / "0.png").read_bytes()[:80]
    )  # a file that the user has named: not status 1
    assert main(["classify", "--model", deploy, "--weights", weights, "cut.png"]) == 2
    assert "cut.png: a damaged image file: " in capsys.readouterr().err
    (folder / "names.txt").write_text("".join(f"digit {number}\n" for number in range(10)))
    words = ["--labels", "names.txt", "--json", "--top", "10", "0.png"]
    told = out_of(capsys, "classify", "--model", deploy, "--weights", weights, *words)
    answer = json.loads(told)
    assert answer["file"] == "0.png"
    assert {each["name"] for each in answer["classes"]} == {f"digit {number}" for number in range(10)}
    assert sum(each["probability"] for each in answer["classes"]) == pytest.approx(1)

    net = bpt.Net(deploy, bpt.TEST, weights=weights)  # the same from Python, with parameters as they are now
    image = net.preprocess("0.png")
    assert image.shape == (1, 1, 28, 28)
    np.testing.assert_array_equal(image[0, 0], np.asarray(Image.open("0.png"), np.float32) * 0.00390625)
    [classified] = net.classify("0.png", labels="names.txt", top=10)
    assert [(guess.number, guess.name) for guess in classified.best] == [
        (each["class"], each["name"]) for each in answer["classes"]
    ]
    probabilities = net.forward(data=image)["prob"][0]
    for guess in classified.best:
        assert guess.value == pytest.approx(probabilities[guess.number], abs=1e-6)
    net.params["ip2"][1].data[7] += 1000
    assert net.classify("0.png")[0].best[0].number == 7


COLOR = """
layer { name: "data" type: "ImageData" top: "data" top: "label"
  transform_param { crop_size: 5 mirror: true scale: 0.5 %s }
  image_data_param { source: "list.txt" batch_size: 2 new_height: 7 new_width: 6 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.mark.parametrize("mean", ["mean_value: 10 mean_value: 20 mean_value: 30", 'mean_file: "mean.binaryproto"'])
def test_a_picture_becomes_what_the_data_layer_makes_of_it(folder: Path, mean: str) -> None:
    rng = np.random.default_rng(0)
    names = ["a.png", "b.png"]
    for name, size in zip(names, ((9, 8, 3), (30, 20, 3)), strict=True):
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(folder / name)
    write_mean("mean.binaryproto", rng.uniform(0, 255, (3, 7, 6)).astype(np.float32))
    (folder / "list.txt").write_text("a.png 0\nb.png 1\n")
    (folder / "mirrored.prototxt").write_text(COLOR % mean)
    (folder / "net.prototxt").write_text((COLOR % mean).replace("mirror: true", ""))
    layer: Any = Net(build_graph_of(file_plan("net.prototxt", pb.TEST))).layers[0]
    expected, _ = layer()
    layer.close()
    net = classifier_net(file_plan("mirrored.prototxt", pb.TEST), batch=2)
    found = image_input(net, ())(names).input
    np.testing.assert_array_equal(found, expected.numpy())  # nor is it mirrored

    deploy = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 5 dim: 5 } } }\n'
    (folder / "deploy.prototxt").write_text(
        deploy
        + 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }'
    )
    recorded = type(layer).preprocessing(layer.spec)
    assert recorded is not None
    (folder / "kept").mkdir()
    write_preprocessing("kept/x", recorded)
    (folder / "mean.binaryproto").unlink()
    (folder / "kept/x_iter_7.caffemodel").touch()
    net = classifier_net(file_plan("deploy.prototxt", pb.TEST))
    np.testing.assert_array_equal(image_input(net, ["kept/x_iter_7.caffemodel"])(names).input, expected.numpy())
    assert read_preprocessing("kept/x_preprocessing.prototxt").channels == 3
    (folder / "elsewhere_iter_7.caffemodel").write_bytes(pb.NetParameter(name="x").SerializeToString())
    with pytest.raises(UserError, match=r"nothing says how images were prepared .* preprocessing=FILE"):
        image_input(net, ["elsewhere_iter_7.caffemodel"])
    (folder / "other.prototxt").write_text("height: 4 width: 4")
    with pytest.raises(UserError, match=r"other.prototxt: an image becomes 3×4×4 .* the net's input is 3×5×5"):
        image_input(net, (), "other.prototxt")


def test_folders_and_lists(folder: Path) -> None:
    (folder / "cats" / "more").mkdir(parents=True)
    (folder / "cats" / "folder.png").mkdir()
    for name in ("cats/b.JPG", "cats/a.png", "cats/more/c.jpeg", "cats/notes.md", "d e.png"):
        (folder / name).touch()
    (folder / "cats" / "list.txt").write_text("b.JPG 3\n\nd e.png   12\n")
    (folder / "plain.txt").write_text("cats/a.png\nd e.png\n")
    assert pictures(["d e.png", "cats"]) == [
        NamedPicture(path) for path in ("d e.png", "cats/a.png", "cats/b.JPG", "cats/more/c.jpeg")
    ]
    assert pictures(["cats/list.txt"]) == [NamedPicture("cats/b.JPG", 3), NamedPicture("d e.png", 12)]
    assert pictures(["plain.txt"]) == [NamedPicture("cats/a.png"), NamedPicture("d e.png")]
    (folder / "empty").mkdir()
    (folder / "nothing.txt").write_text("\n")
    (folder / "gone.txt").write_text("cats/a.png 1\ncats/none.png 2\n")
    (folder / "some.txt").write_text("cats/a.png 1\ncats/b.JPG\n")
    for named, error, words in (
        (["empty"], UsageError, "no image is in this folder"),
        ([], UsageError, "name images"),
        (["nothing.txt"], FileError, "lists no images"),
        (["none.txt"], FileError, "none.txt"),
        (["none.png"], FileError, r"none\.png: no such file"),
        (["gone.txt"], FileError, r"gone\.txt:2: cats/none\.png: no such file .*; mend the line, or leave it out"),
        (["some.txt"], FileError, r"some\.txt:1: cats/a\.png 1: no such file.*; give all lines a label, or none"),
    ):
        with pytest.raises(error, match=words):
            pictures(named)


def test_mistakes_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deploy = str(PROTOTXT / "lenet" / "deploy.prototxt")
    torch.manual_seed(0)
    (folder / "a.png").touch()
    (folder / "p.prototxt").write_text("height: 28 transform_param { scale: 0.1 }")
    (folder / "q.prototxt").write_text("heigth: 28")
    for words, told in (
        (["a.png", "--model", deploy], "bpt classify needs --weights"),
        (["a.png", "--weights", "w"], "bpt classify needs --model"),
        (["--model", deploy, "--weights", "w"], "name images, folders of images, or lists"),
        (["a.png", "--model", deploy, "--weights", "p.prototxt"], "p.prototxt: is a text file"),
        (["a.png", "--model", deploy, "--weights", "missing"], "missing: no such file"),
        (["a.png", "--model", deploy, "--weights", "w", "--preprocessing", "p.prototxt"], "give a height and a width"),
        (["a.png", "--model", deploy, "--weights", "w", "--preprocessing", "q.prototxt"], "q.prototxt:1:1"),
    ):
        assert main(["classify", *words]) == 2
        assert told in capsys.readouterr().err
