"""The blobs of a net in one buffer: trained ones first, and statistics behind them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bpt.nn.net import Net
from bpt.train.outer.flat_weights import FlatWeights
from tests.support.golden_cases import graph_of

# A BatchNorm, whose three blobs passes leave, stands in the middle; and "fixed" does not learn.
NET = """
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
    return Net(graph_of(NET))


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
