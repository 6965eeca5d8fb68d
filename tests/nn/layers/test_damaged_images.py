"""Lists with damaged images: all are named at once, or the next one takes the place of each, on any ranks alike."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.base.errors import BptError, LayerError, RunError
from bpt.cli.main import main
from bpt.data.lmdb_file import LmdbSource
from bpt.graph.share import Share, whole_batch
from bpt.nn.net import Net
from bpt.train.state import save_weights
from tests.support.damaged_pictures import DAMAGED, picture_bytes
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import shares_of
from tools import extract_features

BAD = {3: "cut.png", 4: "empty.png", 9: "zeros.jpg"}
"""Number in the list → a damaged file."""
TAKEN = {3: 5, 4: 5, 9: 0}
"""Number in the list → that of the image that takes its place."""
COUNT = 10


@pytest.fixture(autouse=True)
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of 10 images, numbered by their labels, 3 of them damaged."""
    monkeypatch.chdir(tmp_path)
    names = [BAD.get(number, f"{number}.png") for number in range(COUNT)]
    for number, name in enumerate(names):
        if number in BAD:
            DAMAGED[name](Path(name))
        else:
            Path(name).write_bytes(picture_bytes("PNG", number, (6, 5)))
    Path("list").write_text("".join(f"{name} {number}\n" for number, name in enumerate(names)))


def layer(kind: str = "ImageData", more: str = "", outer: str = "", batch: int = COUNT) -> str:
    kind_of = "label_type: IMAGE" if kind == "ImageSegData" else ""
    return (
        f'layer {{ name: "d" type: "{kind}" top: "data" top: "label" {outer} '
        f'image_data_param {{ source: "list" batch_size: {batch} {kind_of} {more} }} }}'
    )


def labels(net: Net, batches: int = 1) -> list[int]:
    read = []
    for _ in range(batches):
        label = net.layers[0]()[1]
        read += label.flatten(1)[:, 0].int().tolist() if label.dim() > 1 else label.int().tolist()
    return read


@pytest.mark.parametrize("kind", ["ImageData", "ImageSegData"])
@pytest.mark.parametrize("workers", [1, 3])
def test_all_are_named_at_once(kind: str, workers: int) -> None:
    net = Net(graph_of(layer(kind, outer=f"transform_param {{ num_workers: {workers} }}", batch=5)))
    with pytest.raises(RunError) as caught:
        labels(net)
    net.layers[0].close()  # type: ignore[operator]
    for number, name in BAD.items():
        assert str(caught.value).count(f"list:{number + 1}: {name}: ") == 1


def test_all_are_named_if_the_first_is_damaged() -> None:
    Path("0.png").unlink()
    with pytest.raises(LayerError) as caught:
        graph_of(layer())
    for number, name in {**BAD, 0: "0.png"}.items():
        assert str(caught.value).count(f"list:{number + 1}: {name}: ") == 1


@pytest.mark.parametrize("kind", ["ImageData", "ImageSegData"])
def test_the_next_one_takes_the_place(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    net = Net(graph_of(layer(kind, "on_error: SKIP")))
    with caplog.at_level(logging.WARNING, "bpt"):
        assert labels(net, 2) == [TAKEN.get(number, number) for number in range(COUNT)] * 2
        net.layers[0].close()  # type: ignore[operator]
    for number, name in BAD.items():
        assert (
            sum(f"list:{number + 1}: {name}: " in message for message in caplog.messages) == 1
        )  # once, not each epoch
    assert any("3 of 10" in message for message in caplog.messages)


def test_none_can_be_read() -> None:
    for number in range(COUNT):
        Path(f"{number}.png").unlink(missing_ok=True)
    with pytest.raises(BptError, match="none of the 10"):
        graph_of(layer(more="on_error: SKIP"))


@pytest.mark.parametrize("counts", [(10, 0), (3, 7), (4, 1, 5), (1,) * 10])
@pytest.mark.parametrize("workers", [1, 3])
def test_ranks_and_workers_agree(counts: tuple[int, ...], workers: int) -> None:
    """The same pixels, mirrors and crops, whoever meets a damaged file first."""
    random = f"transform_param {{ mirror: true crop_size: 3 num_workers: {workers} }}"
    text = layer(more="on_error: SKIP shuffle: true", outer=random)

    def batches(share: Share) -> list[torch.Tensor]:
        net = Net(graph_of(text))
        one = net.layers[0]
        one.share = share  # type: ignore[assignment]
        read = [one()[0] for _ in range(3)]
        one.close()  # type: ignore[operator]
        return read

    whole = batches(whole_batch(COUNT))
    parts = [batches(share) for share in shares_of(counts)]
    for number, expected in enumerate(whole):
        assert torch.equal(torch.cat([part[number] for part in parts]), expected)


FEATURES = """layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2
  weight_filler { type: "xavier" } } }"""


@pytest.mark.parametrize("setting", ["", "on_error: SKIP"])
def test_features_of_the_others(
    setting: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    Path("net.prototxt").write_text(layer(more=setting, batch=5) + FEATURES)
    words = ["net.prototxt", "data", "db", "2", "lmdb"]
    save_weights(Net(graph_of(layer(more="on_error: SKIP") + FEATURES)), "w.caffemodel")
    capsys.readouterr()
    assert extract_features.main(["w.caffemodel", *words]) == 1
    error = capsys.readouterr().err + caplog.text
    for number, name in BAD.items():
        assert error.count(f"list:{number + 1}: {name}: ") == 1
    source = LmdbSource("db")
    samples = [source.read(index) for index in range(len(source))]
    source.close()
    whole = [number for number in range(COUNT) if number not in BAD]
    assert [int(sample.key) for sample in samples] == whole

    for number, sample in zip(whole, samples, strict=True):
        expected = np.asarray(Image.open(f"{number}.png"))[:, :, ::-1].transpose(2, 0, 1)
        np.testing.assert_array_equal(sample.image, expected)


def test_training_ends_with_one_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    loss = 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "l" }'
    solver = 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 3 solver_mode: CPU random_seed: 1'
    Path("solver.prototxt").write_text(f'{solver} snapshot_prefix: "s"')
    text = layer(batch=5) + FEATURES.replace("num_output: 2", "num_output: 10") + loss
    Path("net.prototxt").write_text(text)
    assert main(["train", "--solver", "solver.prototxt"]) == 1
    error = capsys.readouterr().err
    assert all(f"list:{number + 1}: {name}: " in error for number, name in BAD.items())
    Path("net.prototxt").write_text(text.replace("batch_size: 5", "batch_size: 5 on_error: SKIP"))
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    error = capsys.readouterr().err
    assert all(error.count(f"list:{number + 1}: {name}: ") == 1 for number, name in BAD.items())
