"""bpt's sources of images against torch's DataLoader with Pillow: the same files, in turn; and the wait in training."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from bpt.allocator import keep_freed_memory
from bpt.context import PassContext
from bpt.data.lmdb_file import LmdbWriter
from bpt.graph.build import build_graph
from bpt.graph.source import layer_specs
from bpt.layers import LAYERS
from bpt.layers.prefetching import PrefetchingDataLayer
from bpt.net import Net
from bpt.plan.nets import make_state
from bpt.proto import bpt_pb2 as pb
from bpt.solver.solver import Solver
from scripts.benches.data_loader import loader
from scripts.benches.harness.sides import solver_source
from scripts.benches.harness.turns import ratio

HELP = "images from files and an LMDB against torch's DataLoader with Pillow; the wait for data in training"
RESIZED, CROP, MEAN = 256, 227, 110.0
KINDS = {"ImageData": "JPEG files", "Data": "LMDB of JPEGs"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=512, help="JPEGs to make (default %(default)s)")
    parser.add_argument("--size", default="500x375", help="their width and height (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images of a batch (default %(default)s)")
    parser.add_argument("--workers", type=int, default=cores(), help="threads or processes (default: cores)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side (default %(default)s)")
    parser.add_argument("--net", default="alexnet", help="net to train behind the files (default %(default)s)")
    parser.add_argument("--iterations", type=int, default=6, help="its timed iterations; 0: none (default %(default)s)")


def cores() -> int:
    return min(8, len(os.sched_getaffinity(0)))


def make_images(folder: Path, count: int, width: int, height: int) -> None:
    """JPEGs of coloured clouds, about as large as photos, a list of them, and an LMDB that holds the files."""
    generator = np.random.default_rng(0)
    with LmdbWriter(folder / "lmdb") as writer:
        names = [f"{folder}/{number:06d}.jpg" for number in range(count)]
        for number, name in enumerate(names):
            coarse = Image.fromarray(generator.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8))
            clouds = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
            noisy = clouds + generator.integers(-12, 13, clouds.shape, dtype=np.int16)
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(name, quality=90)
            writer.put(pb.Datum(data=Path(name).read_bytes(), label=number % 1000, encoded=True))
    (folder / "list.txt").write_text("".join(f"{name} {number % 1000}\n" for number, name in enumerate(names)))


def layer_of(kind: str, folder: Path, batch: int, workers: int) -> pb.LayerParameter:
    """A data layer that reads what ``make_images`` made: from files resized, and cropped and mirrored at random."""
    layer = pb.LayerParameter(name="data", type=kind, top=["data", "label"])
    layer.transform_param.MergeFrom(
        pb.TransformationParameter(mirror=True, crop_size=CROP, mean_value=[MEAN], num_workers=workers)
    )
    if kind == "ImageData":
        param = layer.image_data_param
        param.source, param.batch_size = f"{folder}/list.txt", batch
        param.new_height = param.new_width = RESIZED
    else:
        data = layer.data_param
        data.source, data.batch_size, data.backend = f"{folder}/lmdb", batch, pb.DataParameter.LMDB
    return layer


def bpt_side(kind: str, folder: Path, batch: int, workers: int) -> Callable[[int], object]:
    """What reads so many batches by bpt, from the first image on. It has begun with the next two when it stops."""
    text = pb.NetParameter(layer=[layer_of(kind, folder, batch, workers)])
    text.layer[0].data_param.prefetch = 1
    keep_freed_memory()  # as the command line does
    graph = build_graph("data", layer_specs(text), LAYERS, make_state(pb.TRAIN))
    layer = Net(graph, PassContext()).layers[0]
    assert isinstance(layer, PrefetchingDataLayer)

    def read(batches: int) -> None:
        layer.position = 0
        for _ in range(batches):
            layer()
        layer.position = 0  # stops reading ahead

    return read


def speeds(sides: Sequence[Callable[[int], object]], batches: int, batch: int, rounds: int) -> list[list[float]]:
    """Images a second of each side in each turn, after one that is not counted."""
    result: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for side, measured in zip(sides, result, strict=True):
            start = time.perf_counter()
            side(batches)
            if number:
                measured.append(batches * batch / (time.perf_counter() - start))
    return result


def row(name: str, ours: Sequence[float], theirs: Sequence[float]) -> str:
    """A line of the table. Turns that followed each other make a ratio."""
    return f"{name:14} {median(ours):>9.0f} {median(theirs):>13.0f} {ratio(ours, theirs)}"


def waits(net: str, folder: Path, batch: int, workers: int, iterations: int) -> Iterator[tuple[float, float]]:
    """For each iteration of training ``net`` on the files: seconds of waiting for the batch, and in all."""
    source = solver_source(net, batch, "AUTO")
    source.param.net_param.layer[0].CopyFrom(layer_of("ImageData", folder, batch, workers))
    with Solver(source) as solver:
        layer = solver.net.data_layers()["data"]
        assert isinstance(layer, PrefetchingDataLayer)
        solver.runtime.settle()
        solver.step(2)
        for _ in range(iterations):
            start = time.perf_counter()
            solver.step(1)
            yield layer.waited, time.perf_counter() - start


def run(arguments: argparse.Namespace) -> None:
    batch, workers = arguments.batch, arguments.workers
    width, height = map(int, arguments.size.split("x"))
    batches = max(1, arguments.images // batch)
    with tempfile.TemporaryDirectory(prefix="bpt_bench_") as name:
        folder = Path(name)
        make_images(folder, arguments.images, width, height)
        print(f"{arguments.images} JPEGs of {width}x{height}, batches of {batch}, {workers} workers, {cores()} cores")
        print("images a second, medians of turns; above 1, bpt is faster")
        print(f"{'source':14} {'bpt':>9} {'DataLoader':>13} {'ratio':>6}  quartiles of the ratio")
        for kind, what in KINDS.items():
            theirs = loader(kind, folder, batch, workers, (RESIZED, CROP, MEAN))
            theirs(batches)  # starts its processes; they must not inherit an LMDB that is open
            sides = (theirs, bpt_side(kind, folder, batch, workers))
            other, one = speeds(sides, batches, batch, arguments.rounds)
            print(row(what, one, other), flush=True)
        if arguments.iterations:
            measured = list(waits(arguments.net, folder, 16, workers, arguments.iterations))
            wait, total = (median(seconds) * 1e3 for seconds in zip(*measured, strict=True))
            print(f"{arguments.net} on these files, batches of 16: waits {wait:.2f} ms of {total:.0f} ms an iteration")
