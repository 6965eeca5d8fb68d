"""What all generated networks share: where samples come from, how a net ends, and which files it becomes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bpt.caffe.netspec import L, NetSpec, P, Top
from bpt.config.proto.layout import layout

TRAIN = {"phase": P.Phase.TRAIN}
TEST = {"phase": P.Phase.TEST}
WEIGHT_AND_BIAS = [{"lr_mult": 1, "decay_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]
WEIGHT_ONLY = [{"lr_mult": 1, "decay_mult": 1}, {"lr_mult": 1, "decay_mult": 0}]  # decays; both learn alike


class Samples(Protocol):
    """What a network is trained on."""

    @property
    def kind(self) -> str:
        """What a sample is, in the plural."""

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        """Add the layers that read batches of so many samples as ``data``, and return their labels."""

    def feed(self, n: NetSpec) -> None:
        """Add the layer through which a net for use is given its samples."""


@dataclass(frozen=True)
class DataSet:
    """LMDBs to train and test on, and what is done to their images."""

    folder: str
    test_source: str
    crop: int
    transform: dict[str, object]
    kind: str = "images"

    @property
    def shape(self) -> tuple[int, ...]:
        return 3, self.crop, self.crop

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        transform = {"crop_size": self.crop, **self.transform}
        n.data, n.label = L.Data(
            name="data",
            ntop=2,
            include=TRAIN,
            transform_param={"mirror": True, **transform},
            data_param={"source": f"{self.folder}/train_lmdb", "batch_size": train, "backend": P.Data.LMDB},
        )
        # Both layers make the same blobs, each in its phase; so this one's tops cannot have names of their own.
        n["data (test)"] = L.Data(
            name="data",
            ntop=0,
            top=["data", "label"],
            include=TEST,
            transform_param=transform,
            data_param={"source": f"{self.folder}/{self.test_source}", "batch_size": test, "backend": P.Data.LMDB},
        )
        label: Top = n.label
        return label

    def feed(self, n: NetSpec) -> None:
        n.data = L.Input(shape={"dim": [1, *self.shape]})


IMAGENET = DataSet("data/imagenet", "val_lmdb", 224, {"mean_value": [104, 117, 123]})
# crop_size does nothing to images of 32x32 pixels; with an LMDB of padded ones it is the paper's augmentation.
CIFAR10 = DataSet("data/cifar10", "test_lmdb", 32, {"mean_value": [125.3, 123, 113.9], "scale": 1 / 64})


@dataclass(frozen=True)
class Network:
    """One folder of ``prototxt/``.

    Args:
        folder: its path under ``prototxt/``.
        name: the net's name in its text.
        about: what stands at the top of train_val.prototxt.
        build: adds the layers after the data to a net. Its second argument are the labels, or None in a net for use.
        data: what it is trained on.
        batch_sizes: samples of a batch in training and in testing.
        solvers: file name → text.
        suffix: of the other files' names, where a folder has more than one size of a network.
        answers: what comes out of a net for use.
    """

    folder: str
    name: str
    about: str
    build: Callable[[NetSpec, Top | None], None]
    data: Samples
    batch_sizes: tuple[int, int]
    solvers: dict[str, str] = field(default_factory=dict)
    suffix: str = ""
    answers: str = "probabilities of the classes"

    def files(self) -> dict[str, str]:
        """Path under ``prototxt/`` → text."""
        train_val = f"train_val{self.suffix}.prototxt"
        deploy = f"{self.name} for use: {self.data.kind} in, {self.answers} out. See {train_val}."
        texts = {
            train_val: _comment(self.about) + self._text(self._train_val()),
            f"deploy{self.suffix}.prototxt": _comment(deploy) + self._text(self._deploy()),
            **self.solvers,
        }
        return {f"{self.folder}/{name}": text for name, text in texts.items()}

    def _text(self, n: NetSpec) -> str:
        net = n.to_proto()
        net.name = self.name
        return layout(net)

    def _train_val(self) -> NetSpec:
        n = NetSpec()
        self.build(n, self.data.read(n, *self.batch_sizes))
        return n

    def _deploy(self) -> NetSpec:
        n = NetSpec()
        self.data.feed(n)
        self.build(n, None)
        return n


def classify(n: NetSpec, score: Top, label: Top | None) -> None:
    """End a net: loss, and accuracy when testing; in a net for use, probabilities."""
    if label is None:
        n.prob = L.Softmax(score)
        return
    n.loss = L.SoftmaxWithLoss(score, label)
    n.accuracy = L.Accuracy(score, label, include=TEST)


def imagenet_solver(folder: str, about: str, schedule: str) -> str:
    """A solver for a net on ImageNet; ``schedule`` are its lines from test_interval to snapshot."""
    return solver(
        f"{about}\n\n    bpt train --solver prototxt/{folder}/solver.prototxt --gpu 0",
        f"""\
        net: "prototxt/{folder}/train_val.prototxt"

        test_iter: 2000       # 2000 batches of 25: the whole validation set
        """,
        schedule,
        f"""\
        snapshot_prefix: "snapshots/{folder}/{Path(folder).name}"
        solver_mode: CPU      # so that it runs anywhere; --gpu has the last word
        """,
    )


def solver(comment: str, *parts: str) -> str:
    """A solver text from its parts, indented as they may be."""
    return _comment(comment) + "".join(textwrap.dedent(part) for part in parts)


def _comment(text: str) -> str:
    """``text`` as a comment, its paragraphs filled; indented ones are left as they are."""
    lines = ["Written by scripts/make_prototxt.py: change it there.", ""]
    for paragraph in text.split("\n\n"):
        lines += _fill(paragraph)
        lines.append("")
    return "".join(f"# {line}".rstrip() + "\n" for line in lines[:-1])


def _fill(paragraph: str) -> list[str]:
    if paragraph.startswith(" "):
        return paragraph.splitlines()
    return textwrap.wrap(" ".join(paragraph.split()), 112)
