"""Deploy nets forward: bpt against plain PyTorch and onnxruntime on the same weights, in turn, each in its own process.

eager          torch.nn in eval and inference_mode, contiguous
channels_last  that, channels-last
compiled       that, through torch.compile
frozen         that, with the weights as constants (torch._inductor.config.freezing); both need a C++ compiler
onnxruntime    its CPU backend on the net as docs/export.md exports it

bpt        bpt.Net(…, bpt.TEST): the input set, forward(), the output read
module     bpt.load_module(…) in fixed_parameters() and inference_mode
bpt test   the loop of the command line

The ratios, and that of peak memory of bpt.Net once a net runs, are those to the fastest of the others; torch is loaded
in the process of each. Outputs are compared: a side that computes something else ends the bench with status 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bpt
from bpt.allocator import keep_freed_memory
from bpt.device import CPU
from bpt.device.memory_use import Memory
from bpt.execute.operator import SegmentOperator
from bpt.graph.layer_graph import LayerGraph
from bpt.net_graph import build_graph_of
from bpt.plan.nets import file_plan
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import read_net
from bpt.proto.text import to_text
from bpt.runtime.net_on_device import make_net
from bpt.runtime.testing import run_test
from bpt.runtime.trained_weights import load_trained
from scripts.benches.harness.arguments import explain, some_of
from scripts.benches.harness.launch import PROTOTXT
from scripts.benches.harness.plain_net import PlainNet
from scripts.benches.harness.turns import Side as Process
from scripts.benches.harness.turns import compete, serve_turns

HELP = "deploy nets forward: bpt against the fastest of plain PyTorch and onnxruntime"
NETS = ("lenet", "alexnet", "googlenet", "resnet50")
MORE = ("cifar10_quick", "caffenet", "resnet20", "resnet152", "vgg16")
OTHERS = ("eager", "channels_last", "compiled", "frozen", "onnxruntime")
OURS = ("bpt", "module", "bpt_test")
WARM_UP = 5  # passes; the first ones compile, and choose a layout
TURN = 0.5  # seconds that the slowest side's turn takes about
CLOSE = 1e-3  # outputs differ by less, as a part of the largest
STATISTICS_OF = 8  # images from which BatchNorm takes its statistics

Array = npt.NDArray[np.float32]
Forward = Callable[[], Array]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    nets = f"which of {', '.join((*NETS, *MORE))}, by commas (default {','.join(NETS)})"
    parser.add_argument("--nets", type=some_of((*NETS, *MORE), "network"), default=NETS, help=nets)
    parser.add_argument("--batches", default="1,32", help="images of a pass, by commas (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of each side (default %(default)s)")
    parser.add_argument("--others", type=some_of(OTHERS, "side"), default=OTHERS, help=f"of {', '.join(OTHERS)}")


def run(arguments: argparse.Namespace) -> int | None:
    kinds = (*arguments.others, *OURS)
    columns = "".join(f" {kind + ' ms':>16}" for kind in kinds)
    ratios = "".join(f" {kind + '/best':>13}" for kind in OURS)
    print(f"{'net':<14} {'batch':>5}{columns}{ratios} {'memory':>7}  won; outputs differ by")
    apart = False
    for net in arguments.nets:
        for batch in map(int, arguments.batches.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                apart |= compare(net, batch, kinds, arguments, Path(folder))
    if apart:
        sys.exit("error: outputs differ; see above")
    return None


def compare(net: str, batch: int, kinds: tuple[str, ...], arguments: argparse.Namespace, folder: Path) -> bool:
    """A row of the table; returns whether outputs differ."""
    prepare(net, batch, folder, "onnxruntime" in kinds)
    sides = [Process.alone("inference", kind, folder, arguments.threads) for kind in kinds]
    for side in sides:
        side.train(WARM_UP, count=False)
    slowest = max(min(side.last["seconds"]) for side in sides)
    compete(sides, arguments.rounds, max(1, round(TURN / slowest)))
    best = min(sides[: -len(OURS)], key=lambda side: side.median)
    ours = sides[-len(OURS) :]
    won = min(zip(sides, kinds, strict=True), key=lambda side: side[0].median)[1]
    outputs = [np.load(folder / f"{kind}.npy") for kind in kinds]
    apart = max(difference(output, outputs[kinds.index("bpt")]) for output in outputs)
    times = "".join(f" {side.median * 1e3:>16.2f}" for side in sides)
    ratios = "".join(f" {side.median / best.median:>13.3f}" for side in ours)
    memory = ours[0].last["peak_mib"] / best.last["peak_mib"]
    print(f"{net:<14} {batch:>5}{times}{ratios} {memory:>7.3f}  {won}; {apart:.1e}", flush=True)
    return not apart < CLOSE


def difference(output: Array, expected: Array) -> float:
    """The largest one between two elements, as a part of the largest of ``expected``; infinite if shapes differ."""
    if output.shape != expected.shape:
        return float("inf")
    return float(np.abs(output - expected).max() / np.abs(expected).max())


def prepare(net: str, batch: int, folder: Path, onnx: bool) -> None:
    """What all sides read: the net's text with this batch size, weights, images, and the exported net if wanted."""
    source = read_net(PROTOTXT / net / "deploy.prototxt").param
    [fed] = [layer for layer in source.layer if layer.type == "Input"]
    fed.input_param.shape[0].dim[0] = batch
    text = folder / "net.prototxt"
    text.write_text(to_text(source))
    images = np.random.default_rng(0).standard_normal(tuple(fed.input_param.shape[0].dim), dtype=np.float32)
    np.save(folder / "images.npy", images)
    write_weights(text, folder / "net.caffemodel")
    if onnx:
        export(text, folder, torch.from_numpy(images))


def write_weights(text: Path, weights: Path) -> None:
    """Those of the text's fillers, and statistics of BatchNorm after a pass of training: without them nets overflow."""
    net = bpt.Net(text, bpt.TRAIN)
    blob = net.blobs[net.inputs[0]]
    blob.reshape(STATISTICS_OF, *blob.data.shape[1:])
    blob.data[...] = np.random.default_rng(1).standard_normal(blob.data.shape)
    net.forward()
    net.save(weights)


def export(text: Path, folder: Path, images: torch.Tensor) -> None:
    """As docs/export.md tells, for this batch size."""
    module = bpt.load_module(text, weights=folder / "net.caffemodel")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of what torch itself does
        program = torch.export.export(module, (images,))
        torch.onnx.export(program, (), str(folder / "net.onnx"), dynamo=True, verbose=False)


def serve(kind: str, folder: str, threads: str) -> None:
    """A side's process, of OTHERS or OURS."""
    torch.set_num_threads(int(threads))
    step = make_side(kind, Path(folder), int(threads))
    np.save(Path(folder) / f"{kind}.npy", step())
    memory = Memory(CPU)
    memory.reset()  # what compiling has taken is no part of it
    serve_turns(sys.stdin, step, lambda: {"peak_mib": memory.peak / 2**20})


def make_side(kind: str, folder: Path, threads: int) -> Forward:
    """A pass of the net in ``folder``, which returns its output."""
    images: Array = np.load(folder / "images.npy")
    if kind == "onnxruntime":
        return onnx_side(folder / "net.onnx", images, threads)
    text, weights = folder / "net.prototxt", folder / "net.caffemodel"
    if kind == "bpt":
        return net_side(text, weights, images)
    if kind == "module":
        return module_side(text, weights, torch.from_numpy(images))
    graph = build_graph_of(file_plan(str(text), pb.TEST))
    if kind == "bpt_test":
        return test_side(graph, weights, images)
    return plain_side(graph, weights, torch.from_numpy(images), kind)


def net_side(text: Path, weights: Path, images: Array) -> Forward:
    net = bpt.Net(text, bpt.TEST, weights=weights)
    fed, output = net.inputs[0], net.outputs[0]

    def step() -> Array:
        net.blobs[fed].data[...] = images
        return np.asarray(net.forward()[output])

    return step


def module_side(text: Path, weights: Path, images: torch.Tensor) -> Forward:
    module: Any = bpt.load_module(text, weights=weights)
    scope = ExitStack()
    scope.enter_context(module.eval().fixed_parameters())

    @torch.inference_mode()
    def step() -> Array:
        assert scope  # open as long as there is a step
        output: torch.Tensor = module(images)
        return output.numpy()

    return step


def test_side(graph: LayerGraph, weights: Path, images: Array) -> Forward:
    """As ``bpt test`` runs a net for many batches, but for what it logs."""
    keep_freed_memory()
    net = make_net(graph, CPU)
    load_trained(net, [str(weights)], "net.prototxt")
    operator = SegmentOperator(net, device=CPU)
    fed = next(edge.index for edge in graph.edges if graph.nodes[edge.producer].type == "Input")
    data = torch.from_numpy(images)
    scope = ExitStack()
    scope.enter_context(net.fixed_parameters())  # run_test's, for all batches

    def step() -> Array:
        assert scope
        operator.feed({fed: data})
        run_test(operator, 1)
        return operator.values[graph.outputs[0].index].numpy()

    return step


def plain_side(graph: LayerGraph, weights: Path, images: torch.Tensor, variant: str) -> Forward:
    net = make_net(graph, CPU)
    load_trained(net, [str(weights)], "net.prototxt")
    plain = PlainNet(graph).eval()
    plain.take_over(net.values_by_name())
    del net
    layout = torch.contiguous_format if variant == "eager" else torch.channels_last
    forward: Any = plain.to(memory_format=layout)  # type: ignore[call-overload]
    if variant == "frozen":
        import torch._inductor.config as inductor  # noqa: PLC0415  slow to import

        inductor.freezing = True
    if variant in ("compiled", "frozen"):
        forward = torch.compile(forward)

    @torch.inference_mode()
    def step() -> Array:
        output: torch.Tensor = forward(images.contiguous(memory_format=layout))
        return output.numpy()

    return step


def onnx_side(path: Path, images: Array, threads: int) -> Forward:
    import onnxruntime  # noqa: PLC0415  of the environment for developers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fed = session.get_inputs()[0].name

    def step() -> Array:
        output: Array = session.run(None, {fed: images})[0]
        return output

    return step
