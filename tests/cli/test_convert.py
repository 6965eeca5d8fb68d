"""``bpt convert``: the converters of data sets beside that of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.commands import Bpt
from tests.support.mnist_cifar10_files import idx, write_batches
from tests.support.paths import GOLDEN


def content(folder: Path) -> bytes:
    return (folder / "data.mdb").read_bytes()


def test_data_sets(bpt: Bpt, tmp_path: Path) -> None:
    """Each makes the very files that its program in tools/ makes, whose tests compare with Caffe's."""
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    (tmp_path / "images").write_bytes(idx(images))
    (tmp_path / "labels").write_bytes(idx(np.array([3, 1, 4, 1, 5], np.uint8)))
    write_batches(tmp_path)
    outcome = bpt(
        "convert", "mnist", *map(str, (tmp_path / "images", tmp_path / "labels", tmp_path / "m")), "--backend=lmdb"
    )
    assert (outcome.status, outcome.out) == (0, f"{tmp_path}/m: 5 images\n")
    assert bpt("convert", "cifar", str(tmp_path), str(tmp_path / "c"), "lmdb").status == 0
    outcome = bpt("convert", "mean", str(GOLDEN / "lmdb" / "color_lmdb"), str(tmp_path / "mean"))
    assert outcome.status == 0
    assert (tmp_path / "mean").read_bytes() == (GOLDEN / "lmdb" / "color_mean.binaryproto").read_bytes()


def test_images_that_are_left_out_make_the_status_1(bpt: Bpt, tmp_path: Path) -> None:
    Image.new("RGB", (4, 6), (1, 2, 3)).save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png 3\nb.png 1\n")
    outcome = bpt("convert", "imageset", "--gray=true", f"{tmp_path}/", f"{tmp_path}/list.txt", f"{tmp_path}/lmdb")
    assert (outcome.status, outcome.out) == (1, f"{tmp_path}/lmdb: 1 image; 1 could not be read\n")
    assert outcome.err.startswith("left out: ") and outcome.err.endswith(
        "error: some images were left out: see above; repair them and convert again, or continue without them\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["imageset", "--grya", "a", "b", "c"], 'unrecognized arguments: --grya; did you mean "--gray"?'),
        (["annoset", "a", "b", "c"], "--label_type xml needs --label_map_file, which numbers the classes"),
        (["imagset"], 'unknown data "imagset"; did you mean "imageset"?'),
        (["--weights", "w.h5", "mean", "lmdb"], "--weights is for weights; bpt convert mean has flags of its own"),
        ([], "bpt convert needs --weights: the weights to read; for data sets give one of imageset, annoset, mnist"),
        (["mean", "--backend", "leveldb", "lmdb"], "--backend leveldb: LevelDB is neither read nor written"),
    ],
)
def test_mistakes(words: list[str], message: str, bpt: Bpt) -> None:
    outcome = bpt("convert", *words)
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: {message}")


def test_help(bpt: Bpt) -> None:
    outcome = bpt("help", "convert", "annoset")
    assert outcome.out.startswith("usage: bpt convert annoset ")
    assert "    bpt convert annoset --label_map_file labelmap.prototxt --encoded voc/ trainval.txt" in outcome.out
    assert '{"image": {"height": H, "width": W}, "annotation": [{"category_id": 1,' in outcome.out
    assert "imageset" in bpt("completion", "bash").out
