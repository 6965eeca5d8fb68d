"""Weights as one array, whole and divided over servers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import Part
from bpt.graph.stages import part_of
from bpt.nn.net import Net
from bpt.parallel.model_parallel import model_parallel
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.outer.divided_weights import DividedWeights
from bpt.train.outer.flat_weights import FlatWeights
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.parallels import NET

# A BatchNorm, whose three blobs passes leave, stands in the middle; and "fixed" does not learn.
FLAT_NET = """
name: "flat"
layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 2 dim: 2 dim: 3 dim: 3 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "c"
        convolution_param { num_output: 4 kernel_size: 2 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "c" top: "n" }
layer { name: "ip" type: "InnerProduct" bottom: "n" top: "p"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
"""
SIZES = {"conv": [4 * 2 * 2 * 2, 4], "ip": [3 * 4 * 2 * 2, 3], "bn": [4, 4, 1]}  # in the order of the buffer
TRAINED = 32 + 4 + 48 + 3
SIZE = TRAINED + 9


def made() -> Net:
    return Net(graph_of(FLAT_NET))


def blobs(net: Net) -> list[torch.Tensor]:
    """In the order of the buffer."""
    layers = {name: net.layer(net.graph.nodes[net.graph.index_of[name]]) for name in SIZES}
    return [layers[name].blob(index) for name, sizes in SIZES.items() for index in range(len(sizes))]


def numbered(net: Net) -> None:
    """Give every element its place in the buffer."""
    start = 0
    with torch.no_grad():
        for blob in blobs(net):
            blob.copy_(torch.arange(start, start + blob.numel()).view(blob.shape))
            start += blob.numel()


def test_sizes() -> None:
    flat = FlatWeights(made())
    assert (flat.size, flat.trained, flat.dtype) == (SIZE, TRAINED, np.float32)


def test_what_is_trained_comes_first() -> None:
    net = made()
    numbered(net)
    assert FlatWeights(net).pack().tolist() == list(range(SIZE))


def test_a_buffer_is_a_copy() -> None:
    net = made()
    flat = FlatWeights(net)
    first = flat.pack()
    numbered(net)
    assert not np.array_equal(first, flat.pack())
    second = flat.pack()
    second[:] = -1.0
    assert flat.pack().tolist() == list(range(SIZE))


def test_there_and_back() -> None:
    """Also into tensors that lie in memory in another way: the buffer is the same."""
    buffer = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    before = buffer.copy()
    plain, other = made(), made()
    conv = blobs(other)[0]
    conv.data = conv.data.to(memory_format=torch.channels_last)
    for net in (plain, other):
        flat = FlatWeights(net)
        flat.load(buffer)
        np.testing.assert_array_equal(flat.pack(), before)
        pieces = np.split(before, np.cumsum([size for sizes in SIZES.values() for size in sizes])[:-1])
        for blob, piece in zip(blobs(net), pieces, strict=True):
            np.testing.assert_array_equal(blob.detach().numpy().reshape(-1), piece)
    assert not conv.is_contiguous()
    np.testing.assert_array_equal(buffer, before)


def test_what_is_loaded_is_copied() -> None:
    """The buffer is a version of the global weights, which nobody may change by training."""
    net, buffer = made(), np.zeros(SIZE, np.float32)
    FlatWeights(net).load(buffer)
    numbered(net)
    assert not buffer.any()


@pytest.mark.parametrize("buffer", [np.zeros(SIZE + 1, np.float32), np.zeros(SIZE, np.float64)])
def test_a_buffer_of_another_net(buffer: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        FlatWeights(made()).load(buffer)


def test_gradients_are_added_up_and_statistics_are_the_newest() -> None:
    net = made()
    flat, buffer = FlatWeights(net), np.zeros(SIZE, np.float32)
    numbered(net)
    conv, bias, ip, _, *_ = blobs(net)
    conv.grad = torch.full_like(conv, 2.0).to(memory_format=torch.channels_last)
    conv.grad[0, 0, 0, 1] = 7.0
    ip.grad = torch.full_like(ip, 0.5)  # the biases have none
    flat.add_gradients(buffer)
    flat.add_gradients(buffer)
    expected = np.zeros(SIZE, np.float32)
    expected[:32], expected[1], expected[36:84] = 4.0, 14.0, 1.0
    expected[TRAINED:] = range(TRAINED, SIZE)
    np.testing.assert_array_equal(buffer, expected)
    assert bias.grad is None


def test_gradients_arrive() -> None:
    """... and stay what they are when the buffer is used again."""
    net = made()
    buffer = np.arange(SIZE, dtype=np.float32)
    flat = FlatWeights(net)
    before = flat.pack()
    flat.set_gradients(buffer)
    buffer[:] = 0
    gradients = [blob.grad for blob in blobs(net)[:4]]
    assert [g.shape for g in gradients if g is not None] == [blob.shape for blob in blobs(net)[:4]]
    assert torch.cat([g.reshape(-1) for g in gradients if g is not None]).tolist() == list(range(TRAINED))
    after = flat.pack()
    np.testing.assert_array_equal(after[:TRAINED], before[:TRAINED])
    assert after[TRAINED:].tolist() == list(range(TRAINED, SIZE))


def test_a_net_without_blobs() -> None:
    flat = FlatWeights(Net(graph_of('layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 1 } } }')))
    assert (flat.size, flat.trained, flat.pack().shape) == (0, 0, (0,))


TRANSPOSED = NET.replace("num_output: 5 ", "num_output: 5 transpose: true ")
# Layers: data, first, bn, fc, relu, last, fixed, loss. The last stage has no parameters; the first one not only the
# first ones, so that nothing is in order; "bn" and "fixed" are not trained.
STAGES_OF = (0, 1, 0, 0, 1, 2, 1, 3)


def stages(graph: LayerGraph) -> Sequence[Part]:
    return [part_of(graph, STAGES_OF, stage) for stage in range(4)]


def on_ranks(
    comm: Communicator, stages_of: int, shards: int, parts: Sequence[Part], text: str = NET
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], int]:
    """The part of this rank, what it has packed then, what all have together, and bytes sent."""
    grid = ProcessGrid.regular(comm, stages_of, shards)
    net = Net(graph_of(text), part=parts[comm.rank % len(parts)])
    flat = FlatWeights(net)
    weights = DividedWeights(net, flat, grid, parts)
    whole = np.arange(weights.size, dtype=np.float32) if comm.rank == 0 else None
    seen = Seen(comm)
    part = weights.scatter(whole)
    flat.load(part)
    packed = flat.pack()
    together = weights.gather(packed if comm.rank < len(parts) else packed + 1)  # of others nothing counts
    sent = sum(traffic.sent for (label, _), traffic in seen.calls().items() if label == "within a worker")
    return part, packed, together, sent


@pytest.mark.parametrize("replicas", [1, 2])
def test_parts_are_those_of_the_whole_net(replicas: int) -> None:
    """28 + 9 + 25 + 12 + 6 elements; each blob has the numbers that a net in one piece has at its place."""
    graph = graph_of(NET)
    one = Net(graph)
    FlatWeights(one).load(np.arange(80, dtype=np.float32))
    found = run_ranks(4 * replicas, lambda comm: on_ranks(comm, 4, 1, stages(graph)))
    for rank, (part, packed, together, _) in enumerate(found):
        held = [p for p in one.local_params if STAGES_OF[p.layer] == rank % 4]
        in_order = [p for p in held if one.value(p).requires_grad] + [p for p in held if not one.value(p).requires_grad]
        blobs = [one.value(p).detach().numpy().reshape(-1) for p in in_order]
        np.testing.assert_array_equal(part, np.concatenate(blobs) if blobs else np.zeros(0, np.float32))
        np.testing.assert_array_equal(packed, part)
        np.testing.assert_array_equal(together, np.arange(0 if rank else 80, dtype=np.float32))
    # The leader sends what it does not keep, fc and bn; the others send back what they have. Each rank of the first
    # replica tells the second what it has got.
    copies = [4 * elements * (replicas - 1) for elements in (34, 34, 12, 0)]
    own = [4 * (80 - 34), 4 * 34, 4 * 12, 0]
    sent = [sent + copy for sent, copy in zip(own, copies, strict=True)]
    assert [sent for *_, sent in found] == sent + [0] * 4 * (replicas - 1)


@pytest.mark.parametrize("scheme", [pb.FcParameter.PEER, pb.FcParameter.MASTER_SLAVE])
def test_slices_of_either_axis(scheme: int) -> None:
    """A slice of rows or columns is where it is in the blob; what shards hold alike comes back once."""
    graph = graph_of(TRANSPOSED)
    parts = model_parallel.parts(graph, scheme, 2)
    assert {own.axis for own in parts[1].slices.values() if own} == {0, 1}
    one = Net(graph)
    FlatWeights(one).load(np.arange(80, dtype=np.float32))
    found = run_ranks(4, lambda comm: on_ranks(comm, 1, 2, parts, TRANSPOSED))
    for rank, (part, packed, together, _) in enumerate(found):
        mine = parts[rank % 2]
        blobs: dict[bool, list[NDArray[np.float32]]] = {False: [], True: []}
        for param in filter(mine.holds, one.local_params):
            value, own = one.value(param), mine.slice_of(param)
            numbers = value.detach().numpy()
            blobs[not value.requires_grad].append((numbers[own.index(numbers.ndim)] if own else numbers).reshape(-1))
        np.testing.assert_array_equal(part, np.concatenate(blobs[False] + blobs[True]))
        np.testing.assert_array_equal(packed, part)
        np.testing.assert_array_equal(together, np.arange(0 if rank else 80, dtype=np.float32))
