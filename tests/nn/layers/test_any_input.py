"""What every vision and neuron layer must stand: any memory format, an empty batch, torch's exporters."""

from __future__ import annotations

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from tests.nn.layers.one_bottom_layers import LAYERS, run
from tests.support.marks import few
from tests.support.one_layer import one_layer, randomise, tops_of

SHAPE = (3, 4, 7, 6)
every_layer = pytest.mark.parametrize("body", LAYERS.values(), ids=LAYERS.keys())


@every_layer
def test_channels_last_gives_the_same(body: str) -> None:
    x = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
    plain, plain_grads = run(randomise(one_layer(body, SHAPE)), x.clone())
    last, last_grads = run(randomise(one_layer(body, SHAPE)), x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain)
    torch.testing.assert_close(last_grads, plain_grads, rtol=1e-4, atol=1e-5)


@every_layer
def test_no_samples(body: str) -> None:
    empty = (0, *SHAPE[1:])
    layer = randomise(one_layer(body, empty))
    before = [blob.detach().clone() for blob in layer.blobs]
    top, (diff, *grads) = run(layer, torch.zeros(empty))
    assert top.shape == tops_of(one_layer(body, SHAPE), torch.rand(SHAPE))[0][:0].shape
    assert diff.shape == empty
    for grad in grads:
        assert torch.equal(grad, torch.zeros_like(grad))
    assert all(map(torch.equal, layer.blobs, before))


@pytest.mark.parametrize("body", few(LAYERS.values(), every=3), ids=LAYERS.keys())
def test_exports_for_any_batch_size(body: str) -> None:
    layer = randomise(one_layer(body, SHAPE, phase=pb.TEST)).eval()
    x = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(layer, (x,), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
    larger = torch.cat([x, x.flip(0)])
    torch.testing.assert_close(program.module()(larger), layer(larger))


@pytest.mark.parametrize("body", few(LAYERS.values(), every=3), ids=LAYERS.keys())
def test_compiles(body: str) -> None:
    x = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
    plain, plain_grads = run(randomise(one_layer(body, SHAPE)), x.clone())
    layer = randomise(one_layer(body, SHAPE))
    layer.compile(backend="aot_eager")
    compiled, compiled_grads = run(layer, x.clone())
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(compiled_grads, plain_grads)
