"""The networks of the StaticLB paper, the batches that they are trained with, and their solvers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_solver
from bpt.config.proto.text import to_text
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from scripts.benches.harness.launch import PROTOTXT, ROOT
from scripts.benches.harness.nets import reading_net
from scripts.benches.harness.testbed import call

IMAGES = 16384
FEW_IMAGES = 1024  # with --quick


@dataclass(frozen=True)
class Setting:
    """What a network is trained on.

    Attributes:
        shape: of its images.
        epoch: samples of an epoch, of MNIST or CIFAR-10: what times of an epoch are of.
        batches: samples of a batch, of all ranks together.
        quick: the same for ``--quick``.
    """

    shape: str
    epoch: int
    batches: tuple[int, ...]
    quick: tuple[int, ...]


MNIST, CIFAR = ("1x28x28", 60_000), ("3x32x32", 50_000)
SMALL = ("staticlb_mnist", "staticlb_cifar10")  # Tables 1 and 2
# Such that an iteration takes half a second or more. A host of a quarter of a core needs 10 to 20 ms for the exchange,
# and stands still for 7.5 ms at a time, so that shorter iterations are uneven.
NETS = {
    "staticlb_mnist": Setting(*MNIST, (1024, 2048, 4096, 8192), (64, 128)),
    "staticlb_cifar10": Setting(*CIFAR, (512, 1024, 2048, 4096), (64,)),
    "resnet20": Setting(*CIFAR, (256, 512), (16,)),
    "resnet32": Setting(*CIFAR, (384,), (8,)),
    "resnet44": Setting(*CIFAR, (256,), (8,)),
    "resnet56": Setting(*CIFAR, (256,), (8,)),
    "resnet110": Setting(*CIFAR, (192,), (8,)),
}


def profile_of(name: str, folder: Path) -> Path:
    """Where the speeds of the ranks for the network ``name`` are kept."""
    return folder / f"{name}.json"


def write_solver(name: str, batch: int, data: Path, folder: Path) -> Path:
    """The solver of the network ``name`` of ``prototxt/``, for training alone on the images in ``data``."""
    param = read_solver(PROTOTXT / name / "solver.prototxt").param
    param.snapshot_after_train = False
    tests = "test_net", "test_iter", "test_state", "test_interval"
    for field in ("net", *tests, "snapshot", "display", "stepvalue", "parallel_param"):
        param.ClearField(field)
    param.net_param.CopyFrom(reading_net(name, data, batch))
    param.lr_policy, param.base_lr = "fixed", 1e-4  # so low that weights stay what they are, whatever the data
    param.max_iter = 10**6
    param.random_seed = 1
    param.snapshot_prefix = "bench"
    param.engine = pb.SolverParameter.CHANNELS_LAST
    param.parallel_param.balance_param.profile = str(profile_of(name, folder))
    path = folder / f"{name}_{batch}.prototxt"
    path.write_text(to_text(param))
    return path


def parameters(solver: Path) -> int:
    """Trained and other numbers that the solver's network learns."""
    return sum(count(param.shape) for param in build_graph_of(read_plan(solver).train).learnable)


def make_images(shape: str, folder: Path, few: bool = False) -> Path:
    """Synthetic images as an LMDB."""
    made = folder / shape
    if not made.exists():
        words = [str(made), "--shape", shape, "--train", str(FEW_IMAGES if few else IMAGES), "--test", "0"]
        call(ROOT / "scripts" / "make_synthetic.py", *words)
    return made / "train_lmdb"


def images_to_learn(name: str, data: Path, folder: Path, few: bool = False) -> tuple[Path, int, int]:
    """Train and test images for accuracy, how many to train on and to test on: real ones, if they are in ``data``.

    In place of MNIST there are scikit-learn's digits, in that of CIFAR-10 images made by a formula.
    """
    kind = "mnist" if name == "staticlb_mnist" else "cifar10"
    if (data / kind / "train_lmdb").exists():
        return data / kind, NETS[name].epoch, 10_000
    made = folder / f"to_learn_{kind}"
    train, test = (1437, 360) if kind == "mnist" else (FEW_IMAGES, 100) if few else (4000, 500)
    if not made.exists():
        if kind == "mnist":
            call(ROOT / "scripts" / "make_digits.py", str(made))
        else:
            words = ["--shape", NETS[name].shape, "--train", str(train), "--test", str(test)]
            call(ROOT / "scripts" / "make_synthetic.py", str(made), *words)
    return made, train, test


def sorted_batches(batches: Sequence[int]) -> list[int]:
    """The largest first: the profile is measured for it, and serves all smaller ones."""
    return sorted(set(batches), reverse=True)
