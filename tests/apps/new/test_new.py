"""``bpt new``: a folder of pictures becomes lists, a network and a solver, with which training and asking just work."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bpt as package
from bpt.apps.new.split_pictures import test_batches as batches_of_test
from bpt.config.plan.nets import file_plan
from bpt.nn.net_graph import build_graph_of
from tests.support.commands import Bpt

CLASSES = ("Blau", "Grün ist schön", "red")
MODES = ("RGB", "L", "CMYK", "RGBA")
WHOLE = 20  # pictures of a class


def draw(folder: str, count: int = WHOLE, side: int = 20, classes: tuple[str, ...] = CLASSES) -> None:
    """Draw ``count`` pictures a class: noise with a bright bar at the class's own height, so that gray ones show it."""
    generator = np.random.default_rng(0)
    for label, name in enumerate(classes):
        Path(folder, name).mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(0, 60, (side, side, 3), np.uint8)
            first = side * (1 + label * 2) // 8
            pixels[first : first + side // 5] += 180
            mode = MODES[number % len(MODES)]
            ending = "png" if mode == "RGBA" else "jpg"
            Image.fromarray(pixels).convert(mode).save(Path(folder, name, f"bild {number:02} ä.{ending}"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def test_from_a_folder_to_an_answer(bpt: Bpt) -> None:
    """Three commands: the network tells the classes apart, and names them."""
    draw("Bilder")
    Path("Bilder", "red", "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    Path("Bilder", "red", "empty.png").touch()
    Path("Bilder", "red", "notes.txt").touch()
    made = bpt("new", "Bilder/", "--output=netz für", "--size=16")
    assert made.status == 0, made.err
    assert "left out: Bilder/red/empty.png: an empty file\n" in made.out
    assert "left out: Bilder/red/broken.jpg: " in made.out
    assert "left out: Bilder/red: 1 file without the ending of a picture\n" in made.out
    assert "\n3 classes: 48 pictures to train with, 12 to test with\n" in made.out
    assert len(lines_of("netz für/left_out.txt")) == 3
    assert lines_of("netz für/classes.txt") == list(CLASSES)
    train, test = lines_of("netz für/train.txt"), lines_of("netz für/test.txt")
    assert sorted(train + test) == sorted(
        f"{path} {label}" for label, name in enumerate(CLASSES) for path in Path("Bilder", name).glob("bild*")
    )
    assert [sum(line.endswith(f" {label}") for line in test) for label in range(3)] == [4, 4, 4]

    trained = bpt("train", "--solver=netz für/solver.prototxt", "--set=max_iter: 60 test_interval: 20 base_lr: 0.02")
    assert trained.status == 0
    assert float(re.findall(r"best accuracy = ([\d.]+)", trained.err)[-1]) > 0.9
    assert "warning" not in trained.err.lower()

    asked = bpt(
        "classify",
        "--model=netz für/deploy.prototxt",
        "--weights=netz für/snapshots/net_best.caffemodel",
        "netz für/test.txt",
    )
    assert asked.status == 0, asked.err
    assert float(re.findall(r"accuracy = ([\d.]+)", asked.out)[-1]) > 0.9
    assert '1 "Grün ist schön"' in asked.out


def test_the_seed_decides_the_division(bpt: Bpt) -> None:
    draw("photos", 10)
    lists = []
    for number, seed in enumerate((1, 1, 2)):
        assert bpt("new", "photos", f"--output=n{number}", f"--seed={seed}").status == 0
        lists.append(lines_of(f"n{number}/test.txt"))
    assert lists[0] == lists[1] != lists[2]


@pytest.mark.parametrize("test", ["test", "val", "Validation"])
def test_a_folder_that_is_divided(test: str, bpt: Bpt) -> None:
    """The training pictures are in train/, and those of the other folder are the test."""
    draw("photos/train", 4)
    draw(f"photos/{test}", 3)
    assert bpt("new", "photos").status == 0
    train, tested = lines_of("photos_net/train.txt"), lines_of("photos_net/test.txt")
    assert (len(train), len(tested)) == (12, 9)
    assert all(line.startswith("photos/train/") for line in train)
    assert all(line.startswith(f"photos/{test}/") for line in tested)


def test_large_pictures_have_small_copies(bpt: Bpt) -> None:
    """They are what training would make of the pictures themselves."""
    draw("photos", 2, side=600)
    assert bpt("new", "photos", "--size=32").status == 0
    (first, *_) = lines_of("photos_net/train.txt")
    path = first.rpartition(" ")[0]
    assert path.startswith("photos_net/pictures/Blau/bild ") and path.endswith("ä.jpg.png")
    copy = package.caffe.io.load_image(path)
    assert copy.shape == (36, 36, 3)


def test_what_cannot_stand_in_a_list(bpt: Bpt) -> None:
    draw("photos", 3)
    Path("photos/red/two\nlines.png").write_bytes(b"")
    made = bpt("new", "photos")
    assert made.status == 0
    assert "left out: 'photos/red/two\\nlines.png': a list in UTF-8 cannot contain this name" in made.out
    assert len(lines_of("photos_net/train.txt")) + len(lines_of("photos_net/test.txt")) == 9


def test_a_class_without_a_whole_picture_is_left_out(bpt: Bpt) -> None:
    draw("photos", 3)
    Path("photos/An empty one").mkdir()
    Path("photos/loose.jpg").touch()
    Path("photos/Damaged").mkdir()
    Path("photos/Damaged/a.png").write_bytes(b"no")
    made = bpt("new", "photos")
    assert made.status == 0
    assert "class 'An empty one' has no pictures" in made.out
    assert "left out: photos/loose.jpg: is in no class's folder\n" in made.out
    assert "no picture of class 'Damaged' can be decoded" in made.out
    assert lines_of("photos_net/classes.txt") == list(CLASSES)
    assert {line[-1] for line in lines_of("photos_net/train.txt")} == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new"], "bpt new needs a folder of pictures, with a sub-folder for each class: bpt new photos/"),
        (["new", "none"], "none: no such folder; name the folder that holds a sub-folder of pictures for each class"),
        (
            ["new", "photos/Blau/"],
            "photos/Blau/: 2 pictures (bild 00 ä.jpg, bild 01 ä.jpg) in no sub-folder, and no sub-folder has pictures; "
            "make a sub-folder for each class, at least two, and put the pictures there: "
            "photos/Blau/cats/bild 00 ä.jpg and photos/Blau/dogs/bild 01 ä.jpg",
        ),
        (["new", "empty"], "empty: no sub-folder has pictures (known endings: "),
        (["new", "one"], 'one: only the sub-folder "red" has pictures'),
        (["new", "photos/Blau/bild 00 ä.jpg"], "photos/Blau/bild 00 ä.jpg: is a file; name the folder"),
        (["new", "damaged"], "damaged: pictures of 0 classes can be decoded; at least 2 are needed"),
        (["new", "single"], "single: no picture is left to test with; put at least two into each class"),
        (["new", "photos", "--size=8"], "--size: --net small takes 16 to 512 pixels, found 8"),
        (["new", "photos", "--net=googlenet", "--size=64"], "--size: --net googlenet takes 96 to 512 pixels, found 64"),
        (["new", "photos", "--output=there"], "there/solver.prototxt: exists already; remove it, or name another"),
    ],
)
def test_mistakes(words: list[str], message: str, bpt: Bpt) -> None:
    draw("photos", 2)
    draw("one", 2, classes=("red",))
    draw("single", 1)
    for name in ("a", "b"):
        Path("damaged", name).mkdir(parents=True)
        Path("damaged", name, "a.png").write_bytes(b"no")
    Path("empty").mkdir()
    Path("there").mkdir()
    Path("there/solver.prototxt").touch()
    outcome = bpt(*words)
    assert outcome.status == 2
    assert message in outcome.error
    assert not Path("photos_net").exists()


@pytest.mark.parametrize(
    ("net", "size", "last"),
    [
        ("small", 16, "conv3"), ("small", 64, "conv4"), ("small", 224, "conv6"), ("resnet20", 32, "pool"),
        ("resnet20", 50, "pool"), ("googlenet", 96, "pool5/7x7_s1"), ("googlenet", 224, "pool5/7x7_s1"),
    ],
)  # fmt: skip
def test_networks_of_all_sizes(net: str, size: int, last: str, bpt: Bpt) -> None:
    """Train and deploy texts make a score for each class; the deploy text takes single pictures of the size."""
    draw("photos", 2)
    assert bpt("new", "photos", f"--net={net}", f"--size={size}").status == 0
    graph = build_graph_of(file_plan("photos_net/train_val.prototxt", package.TRAIN))
    assert graph.edges[0].shape == (3, 3, size, size)
    assert any(node.name == last for node in graph.nodes)
    use = build_graph_of(file_plan("photos_net/deploy.prototxt", package.TEST))
    assert [(edge.blob, edge.shape) for edge in use.outputs] == [("prob", (1, 3))]
    assert use.edges[0].shape == (1, 3, size, size)
    names = [edge.blob for edge in build_graph_of(file_plan("photos_net/train_val.prototxt", package.TEST)).outputs]
    assert "accuracy" in names


@pytest.mark.parametrize(
    ("count", "size", "times"), [(1, 1, 1), (50, 50, 1), (60, 30, 2), (100, 50, 2), (1009, 48, 21), (106, 35, 3)]
)
def test_batches_take_each_picture_once(count: int, size: int, times: int) -> None:
    """By hand: 1009 = 48 · 21 + 1 is prime, and 106 = 35 · 3 + 1 has no divisor from 16 to 50."""
    assert batches_of_test(count) == (size, times)
