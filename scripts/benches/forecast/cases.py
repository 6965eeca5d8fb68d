"""What ``scripts/bench forecast`` measures: places, networks and ways to train them.

Sizes are such that an iteration takes a third of a second or so on a whole core: a host of a part of a core stands
still for some milliseconds at a time, so that much shorter ones are uneven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.benches.harness.nets import Images

ACCURACY, AUTO = "accuracy", "auto"  # the parts of the bench
CHOSEN, PLAIN = "auto", "ALLREDUCE"  # ways: what the planner chooses, and plain data parallelism


@dataclass(frozen=True)
class Place:
    """Where ranks run.

    Attributes:
        ranks: of the job.
        hosts: as ``scripts/testbed up`` takes them; "": this machine alone.
        bandwidth: of each host's link.
    """

    ranks: int
    hosts: str = ""
    bandwidth: str = ""

    def __str__(self) -> str:
        if not self.hosts:
            return f"1 host, {self.ranks} rank{'s' * (self.ranks != 1)}"
        return f"{self.hosts} at {self.bandwidth}"


@dataclass(frozen=True)
class Case:
    """A network at a place.

    Attributes:
        part: ACCURACY or AUTO.
        ways: to train it, of WAYS; of AUTO those that compete with what the planner chooses.
    """

    part: str
    place: Place
    net: str
    images: Images
    ways: Sequence[str]

    @property
    def name(self) -> str:
        """That --cases knows it by."""
        return f"{self.part}: {self.net} on {self.place}"


def _stages(number: int, schedule: str, micro_batches: int = 4, more: str = "") -> str:
    return f"num_stages: {number} pipeline_param {{ schedule: {schedule} micro_batches: {micro_batches} {more}}}"


PROFILED = "STATIC"  # ways by a profile, which is measured first
WAYS: Mapping[str, str] = {
    PLAIN: "",
    "TREE": "exchange: TREE",
    "RING": "exchange: RING",
    # Of a fixed size, so that no search falls into the measurement.
    "CGDP": "exchange: CGDP cgdp_param { chunk_size: 2 }",
    "DYNAMIC": "balance: DYNAMIC",
    "DYNAMIC RING": "exchange: RING balance: DYNAMIC",
    "DYNAMIC TREE": "exchange: TREE balance: DYNAMIC",
    "DYNAMIC CGDP": "balance: DYNAMIC exchange: CGDP cgdp_param { chunk_size: 2 }",
    PROFILED: "balance: STATIC",
    "RING SHARDED": "exchange: RING update: SHARDED",
    "BF16": "compression_param { codec: BF16 links: ALL }",
    "2 stages": _stages(2, "GPIPE"),
    "2 stages 1F1B": _stages(2, "ONE_F_ONE_B"),
    "2 stages 1F1B x 8": _stages(2, "ONE_F_ONE_B", 8),
    "2 stages ZERO_BUBBLE x 8": _stages(2, "ZERO_BUBBLE", 8),
    "3 stages": _stages(3, "GPIPE"),
    "2 stages by batch": _stages(2, "GPIPE", 4, "batch_norm_over: BATCH "),
    "2 shards": "num_shards: 2",
    "2 stages x 2 shards": f"num_shards: 2 {_stages(2, 'GPIPE')}",
}
"""Name → what stands in ``parallel_param``. Stages and shards that are fewer than ranks have replicas."""

_ONE, _TWO, _FOUR, _EIGHT = (Place(ranks) for ranks in (1, 2, 4, 8))
_NEAR = Place(2, "a:1.0,b:0.5", "1gbit")
_EVEN = Place(2, "a:1.0,b:1.0", "1gbit")
_FAR = Place(2, "a:1.0,b:0.4", "100mbit")
_THREE = Place(3, "a:0.8,b:0.5,c:0.4", "1gbit")
_SLOW = Place(4, "a:0.6,b:0.5,c:0.4,d:0.3", "100mbit")
_PAIRS = Place(4, "a:1.0:2,b:0.7:2", "1gbit")

LENET, CIFAR, RESNET = Images(28, 512), Images(32, 128), Images(32, 64)
ALEXNET, VGG = Images(67, 64), Images(32, 16)
SIZES = {"lenet": LENET, "cifar10_quick": CIFAR, "resnet20": RESNET, "alexnet": ALEXNET, "vgg16": VGG}


def _accuracy(place: Place, **ways: str) -> tuple[Case, ...]:
    """Cases of nets with ways by commas."""
    return tuple(Case(ACCURACY, place, net, SIZES[net], names.split(", ")) for net, names in ways.items())


def _auto(place: Place, more: str, **nets: Images) -> tuple[Case, ...]:
    names = [PLAIN, *more.split(", ")]
    return tuple(Case(AUTO, place, net, images, names) for net, images in nets.items())


CASES: tuple[Case, ...] = (
    *_accuracy(_ONE, **dict.fromkeys(SIZES, PLAIN)),
    *_accuracy(
        _TWO,
        lenet="ALLREDUCE, TREE, RING, CGDP",
        cifar10_quick="ALLREDUCE, 2 stages",
        resnet20="ALLREDUCE, RING, 2 stages, 2 stages 1F1B",
        alexnet="ALLREDUCE, TREE, RING, CGDP, BF16, 2 shards, 2 stages",
        vgg16="ALLREDUCE, CGDP, 2 shards, 2 stages",
    ),
    *_accuracy(
        _FOUR,
        lenet="ALLREDUCE, RING",
        resnet20="ALLREDUCE, TREE, 2 stages",
        alexnet="ALLREDUCE, 2 stages x 2 shards",
    ),
    *_accuracy(_EIGHT, lenet="ALLREDUCE", cifar10_quick="RING", resnet20="ALLREDUCE"),
    *_accuracy(
        _NEAR,
        lenet="ALLREDUCE, DYNAMIC, STATIC",
        cifar10_quick="DYNAMIC, 2 stages",
        resnet20="ALLREDUCE, DYNAMIC, STATIC, 2 stages",
        alexnet="ALLREDUCE, CGDP, BF16, 2 stages",
        vgg16="RING, 2 stages 1F1B",
    ),
    *_accuracy(
        _EVEN,
        cifar10_quick="2 stages 1F1B x 8, 2 stages ZERO_BUBBLE x 8",
        resnet20="2 stages 1F1B x 8, 2 stages ZERO_BUBBLE x 8",
        alexnet="RING, RING SHARDED, 2 stages 1F1B x 8, 2 stages ZERO_BUBBLE x 8",
    ),
    *_accuracy(
        _FAR,
        lenet="ALLREDUCE, TREE, RING, CGDP",
        cifar10_quick="ALLREDUCE, BF16, DYNAMIC",
        resnet20="DYNAMIC, 2 stages",
    ),
    *_accuracy(_THREE, lenet="ALLREDUCE, DYNAMIC", resnet20="ALLREDUCE, DYNAMIC, 3 stages"),
    *_accuracy(
        _SLOW, lenet="ALLREDUCE, RING, DYNAMIC", cifar10_quick="DYNAMIC", resnet20="DYNAMIC, STATIC, 2 stages"
    ),
    *_accuracy(_PAIRS, lenet="ALLREDUCE, RING, CGDP", resnet20="ALLREDUCE, DYNAMIC"),
    # Other networks, in other places: by these no forecast has been made better.
    *_auto(_TWO, "RING, CGDP, 2 stages by batch", resnet44=Images(32, 48), caffenet=Images(67, 48)),
    *_auto(
        Place(2, "a:0.9,b:0.3", "1gbit"),
        "DYNAMIC, DYNAMIC RING, DYNAMIC CGDP, 2 stages by batch",
        resnet32=Images(32, 48), cifar10_full=Images(32, 128),
    ),
    *_auto(
        Place(3, "a:0.8,b:0.5,c:0.3", "100mbit"),
        "DYNAMIC, DYNAMIC RING, DYNAMIC TREE, DYNAMIC CGDP",
        staticlb_mnist=Images(28, 256), resnet32=Images(32, 48),
    ),
    *_auto(
        Place(2, "a:0.8,b:0.8", "100mbit"), "RING, CGDP, 2 stages by batch",
        staticlb_cifar10=Images(32, 64), caffenet=Images(67, 32),
    ),
)  # fmt: skip

QUICK = (
    Case(ACCURACY, _TWO, "lenet", LENET, (PLAIN, "RING")),
    Case(ACCURACY, _TWO, "resnet20", RESNET, (PLAIN, "2 stages")),
    Case(AUTO, _TWO, "cifar10_full", Images(32, 128), (PLAIN, "CGDP")),
)
"""Without a test bed, and so without root."""


@dataclass(frozen=True)
class MemoryCase:
    """A network whose ranks' memory is forecast, and measured on this machine.

    Attributes:
        way: of WAYS.
    """

    net: str
    images: Images
    ranks: int
    way: str

    @property
    def name(self) -> str:
        """That --cases knows it by."""
        return f"memory: {self.net} on {self.ranks} rank{'s' * (self.ranks != 1)}, {self.way}"


MEMORY = (
    MemoryCase("vgg16", VGG, 1, PLAIN),
    MemoryCase("vgg16", VGG, 2, PLAIN),
    MemoryCase("vgg16", VGG, 2, "TREE"),
    MemoryCase("vgg16", VGG, 2, "CGDP"),
    MemoryCase("vgg16", VGG, 2, "2 stages"),
    MemoryCase("vgg16", VGG, 2, "2 shards"),
    MemoryCase("alexnet", Images(131, 64), 1, PLAIN),
    MemoryCase("alexnet", Images(131, 64), 2, "2 stages"),
    MemoryCase("resnet20", Images(32, 256), 1, PLAIN),
    MemoryCase("resnet20", Images(32, 256), 2, PLAIN),
    MemoryCase("resnet20", Images(32, 256), 2, "2 stages 1F1B"),
    MemoryCase("googlenet", Images(224, 4), 1, PLAIN),
)
