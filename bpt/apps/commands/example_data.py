"""Training data of the example networks: the commands that make the data, and what these commands need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class DataRecipe:
    """The commands that make the data of a network.

    Attributes:
        extras: extras of the package that the commands, or training, need, as in ``bpt[demo]``.
        commands: the commands in their order; they run in the folder that has ``prototxt/``.
        wanted: the files that the user must have first; "": none.
    """

    extras: str
    commands: tuple[str, ...]
    wanted: str = ""

    def lines(self, place: str, net: str, text: str) -> Iterator[str]:
        """Yield what to type so that the data of the network ``text``, in the file ``net``, are in ``place``."""
        yield f"pip install 'bpt[{self.extras}]'"
        if self.wanted:
            yield f"# {self.wanted};"
            yield f"# or write in {net} where your data are:"
        yield from self.commands
        if (mean := f"{place}/mean.binaryproto") in text:
            yield f"bpt convert mean {place}/train_lmdb {mean}"


_DIGITS = "python scripts/make_digits.py"
_IMAGESET = "bpt convert imageset --resize_height 256 --resize_width 256"
RECIPES = {
    "data/digits": DataRecipe("demo", (_DIGITS,)),
    "data/digit_pairs": DataRecipe("demo", (_DIGITS, "python scripts/make_pairs.py data/digits data/digit_pairs")),
    "data/boxes": DataRecipe("lmdb", ("python scripts/make_boxes.py data/boxes",)),
    "data/shapes": DataRecipe("lmdb", ("python scripts/make_shapes.py data/shapes",)),
    "data/clips": DataRecipe("hdf5", ("python scripts/make_clips.py data/clips",)),
    "data/brains": DataRecipe("volume", ("python scripts/make_brains.py data/brains",)),
    "data/mnist": DataRecipe(
        "lmdb",
        tuple(
            f"bpt convert mnist {name}-images-idx3-ubyte.gz {name}-labels-idx1-ubyte.gz data/mnist/{part}_lmdb"
            for name, part in (("train", "train"), ("t10k", "test"))
        ),
        "with the four files of MNIST in this folder",
    ),
    "data/cifar10": DataRecipe(
        "lmdb",
        (
            "bpt convert cifar cifar-10-batches-bin data/cifar10",
            *(f"mv data/cifar10/cifar10_{part}_lmdb data/cifar10/{part}_lmdb" for part in ("train", "test")),
        ),
        "with the six .bin files of CIFAR-10's binary version in cifar-10-batches-bin/",
    ),
    "data/imagenet": DataRecipe(
        "lmdb,image",
        (
            f"{_IMAGESET} --shuffle train/ train.txt data/imagenet/train_lmdb",
            f"{_IMAGESET} val/ val.txt data/imagenet/val_lmdb",
        ),
        "with ImageNet's pictures in train/ and val/, and lists of them and their labels, train.txt and val.txt",
    ),
}
"""Recipes by the folder of the data."""
