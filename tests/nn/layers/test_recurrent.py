"""What LSTM and RNN have in common: states between passes, exposed states, the input for all steps, refusals."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS, Layer
from bpt.nn.layers.recurrent import Recurrent
from tests.support.gradient_checker import spaced
from tests.support.one_layer import one_layer, randomise, tops_of

T, N, D, H = 3, 2, 4, 5
STATES = {"LSTM": 2, "RNN": 1}
both = pytest.mark.parametrize("kind", STATES)


def body_of(kind: str, more: str = "") -> str:
    return f'type: "{kind}" recurrent_param {{ num_output: {H} weight_filler {{ type: "xavier" }} {more} }}'


def make(kind: str, steps: int = T, streams: int = N, phase: int = pb.TRAIN) -> Recurrent:
    layer = one_layer(body_of(kind), (steps, streams, D), (steps, streams), phase=phase)
    assert isinstance(layer, Recurrent)
    return layer


def inputs(steps: int, streams: int = N) -> Tensor:
    return torch.randn(steps, streams, D, generator=torch.Generator().manual_seed(steps))


def follow(x: Tensor) -> Tensor:
    """Markers: all streams begin at step 0."""
    return torch.cat([torch.zeros(1, x.shape[1]), torch.ones(len(x) - 1, x.shape[1])])


@both
def test_a_sequence_may_go_on_in_the_next_pass(kind: str) -> None:
    x = inputs(6)
    whole = make(kind, 6)(x, follow(x))
    layer = make(kind)
    first = layer(x[:3], follow(x)[:3])
    second = layer(x[3:], torch.ones(3, N))
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(layer(x[:3], follow(x)[:3]), first)  # a marker of 0 begins anew


@both
def test_no_gradient_flows_from_pass_to_pass(kind: str) -> None:
    layer, x = make(kind), inputs(T).requires_grad_()
    layer(x, follow(x))
    layer(inputs(T), torch.ones(T, N)).sum().backward()
    assert x.grad is None


@both
def test_reset_and_another_number_of_streams_begin_with_0(kind: str) -> None:
    on = torch.ones(T, N)
    x, layer = inputs(T), make(kind)
    first = layer(x, on)
    assert not torch.equal(layer(x, on), first)
    layer.reset()
    assert torch.equal(layer(x, on), first)
    assert layer(inputs(T, 4), torch.ones(T, 4)).shape == (T, 4, H)
    assert torch.equal(layer(x, on), first)
    assert layer(inputs(2), torch.ones(2, N)).shape == (2, N, H)  # the number of steps may change, too


@both
def test_what_is_done_to_the_top_does_not_change_the_state(kind: str) -> None:
    on, x = torch.ones(T, N), inputs(T)
    untouched, touched = make(kind), make(kind)
    untouched(x, on)
    with torch.no_grad():
        touched(x, on).zero_()
    assert torch.equal(touched(x, on), untouched(x, on))


@both
def test_nets_of_other_phases_have_states_of_their_own(kind: str) -> None:
    train, test = make(kind), make(kind, phase=pb.TEST)
    x, on = inputs(T), torch.ones(T, N)
    first = train(x, on)
    train(x, on)
    assert torch.equal(test(x, on), first)


@both
def test_exposed_states_carry_a_sequence_on(kind: str) -> None:
    states = STATES[kind]
    shapes = ((T, N, D), (T, N), *((1, N, H),) * states)
    exposed = one_layer(body_of(kind, "expose_hidden: true"), *shapes, tops=1 + states)
    kept, x, on = make(kind), inputs(T), torch.ones(T, N)
    first, *last = exposed(x, on, *(torch.zeros(1, N, H),) * states)
    second = exposed(x, on, *last)[0]
    assert [state.shape for state in last] == [(1, N, H)] * states
    torch.testing.assert_close([first, second], [kept(x, on), kept(x, on)])
    again = exposed(x, on, *(torch.zeros(1, N, H),) * states)[0]
    assert torch.equal(again, first)  # nothing is kept


@both
def test_no_gradient_through_exposed_states(kind: str) -> None:
    states = STATES[kind]
    shapes = ((T, N, D), (T, N), *((1, N, H),) * states)
    layer = one_layer(body_of(kind, "expose_hidden: true"), *shapes, tops=1 + states)
    first = [torch.ones(1, N, H, requires_grad=True) for _ in range(states)]
    top, *last = layer(inputs(T), torch.ones(T, N), *first)
    assert not any(state.requires_grad for state in last)
    top.sum().backward()
    assert all(state.grad is None for state in first)


@both
def test_an_input_for_all_steps(kind: str) -> None:
    # It is as good as part of the input of each step, with its weights beside the others.
    layer = randomise(one_layer(body_of(kind), (T, N, D), (T, N), (N, 2, 3)))
    plain = one_layer(body_of(kind), (T, N, D + 6), (T, N))
    with torch.no_grad():
        plain.blobs[0].copy_(torch.cat([layer.blobs[0], layer.blobs[2]], 1))
        plain.blobs[1].copy_(layer.blobs[1])
        for mine, other in zip(plain.blobs[2:], layer.blobs[3:], strict=True):
            mine.copy_(other)
    x, static = inputs(T), spaced((N, 2, 3)).float()
    joined = torch.cat([x, static.flatten(1).expand(T, N, 6)], 2)
    torch.testing.assert_close(layer(x, follow(x), static), plain(joined, follow(x)))


@both
def test_axes_behind_the_streams_are_flattened(kind: str) -> None:
    x = inputs(T)
    expected = make(kind)(x, follow(x))
    layer = one_layer(body_of(kind), (T, N, 2, 2, 1), (T, N))
    assert torch.equal(layer(x.reshape(T, N, 2, 2, 1), follow(x)), expected)
    last = x.reshape(T, N, 2, 2)
    layer = one_layer(body_of(kind), (T, N, 2, 2), (T, N))
    assert torch.equal(layer(last.contiguous(memory_format=torch.channels_last), follow(x)), expected)


@both
def test_no_streams(kind: str) -> None:
    layer, x = make(kind, T, 0), torch.zeros(T, 0, D, requires_grad=True)
    top = layer(x, torch.zeros(T, 0))
    top.sum().backward()
    assert top.shape == (T, 0, H)
    assert x.grad is not None and x.grad.shape == (T, 0, D)
    assert all(torch.equal(blob.grad, torch.zeros_like(blob)) for blob in layer.blobs)


@both
def test_exports_for_any_number_of_streams(kind: str) -> None:
    layer, x = make(kind, phase=pb.TEST), inputs(T)
    layer(x, torch.ones(T, N))  # a state that the program is not to have
    streams = ({1: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (x, follow(x)), dynamic_shapes=(streams,))
    more = inputs(T, 7)
    begun = follow(more)
    torch.testing.assert_close(program.module()(more, begun), make(kind)(more, begun))
    on = torch.ones(T, N)
    torch.testing.assert_close(program.module()(x, on), make(kind)(x, on))


@both
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traces(kind: str) -> None:
    x = inputs(T)
    with torch.no_grad():
        traced = torch.jit.trace(make(kind, phase=pb.TEST), (x, follow(x)))
        torch.testing.assert_close(traced(x.flip(1), follow(x)), make(kind)(x.flip(1), follow(x)))


@both
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of a Function
@pytest.mark.slow
def test_compiles(kind: str) -> None:
    def passes(layer: Layer) -> list[Tensor]:
        x = inputs(2).requires_grad_()
        layer(x, follow(x))
        (top,) = tops_of(layer, x, torch.ones(2, N))
        return [top.detach(), *torch.autograd.grad((top * top).sum(), [x, *layer.blobs])]

    compiled = make(kind, 2)
    compiled.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(passes(compiled), passes(make(kind, 2)))


@both
@pytest.mark.gpu
def test_a_gpu_gives_the_same(kind: str) -> None:
    here, there, x, on = make(kind), make(kind), inputs(T), torch.ones(T, N)
    here(x, on)
    there(x, on)  # a state that has to move along
    there.cuda()
    torch.testing.assert_close(there(x.cuda(), on.cuda()).cpu(), here(x, on))


@both
def test_its_batch_is_not_divided(kind: str) -> None:
    layer = make(kind)
    reason = "axis 0 of its bottoms is the time, and the samples are along axis 1"
    assert layer.mixes_samples(layer.spec, [(T, N, D), (T, N)]) == reason
    assert LAYERS[kind].counts_by_data(layer.spec) == reason


def test_debug_info_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        one_layer(body_of("LSTM", "debug_info: true"), (T, N, D), (T, N))
    assert "there is no unrolled net to log" in caplog.text
