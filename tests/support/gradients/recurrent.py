"""Layers that go through sequences."""

from __future__ import annotations

from hypothesis import strategies as some
from torch import Tensor

from tests.support.gradient_checker import spaced
from tests.support.gradients.cases import Case, body, cases
from tests.support.gradients.strategies import flags, labels, shapes
from tests.support.one_layer import Shape

STATES = {"LSTM": 2, "RNN": 1}
MARKERS = "0 and 1 only: between them Caffe's f · (1 - f), with the marker in f, is not calculus"


def small(shape: Shape, seed: int) -> Tensor:
    """Numbers in (-0.5, 0.5): the weights are all positive, and sums of large ones leave a tanh no slope."""
    return spaced(shape, seed) / 4


@cases("LSTM", "RNN")
def _recurrent(draw: some.DrawFn, kind: str) -> Case:
    steps, streams, outputs = (draw(some.integers(1, most)) for most in (4, 3, 3))
    inputs = (steps, streams, *draw(shapes(least=1, most=2, largest=4)))
    markers = draw(labels((steps, streams), 2))  # see MARKERS
    exposed = draw(flags)
    bottoms = [small(inputs, 0), markers]
    if draw(flags):
        bottoms.append(small((streams, *draw(shapes(least=1, most=2, largest=4))), 1))
    constant = {1}
    if exposed:  # no gradient flows into the first states, nor out of the last: as in Caffe
        constant |= set(range(len(bottoms), len(bottoms) + STATES[kind]))
        bottoms += [small((1, streams, outputs), seed) for seed in range(2, 2 + STATES[kind])]
    else:  # begin at 0, whatever state the pass before has left
        markers[0] = 0
    text = body(kind, "recurrent_param", num_output=outputs, expose_hidden=exposed)
    return Case(text, tuple(bottoms), tuple(sorted(constant)), tops=1 + STATES[kind] * exposed)


@cases("LSTMUnit")
def _lstm_unit(draw: some.DrawFn, kind: str) -> Case:
    streams, size = draw(some.tuples(*[some.integers(1, 5)] * 2))
    markers = draw(labels((1, streams), 2))  # see MARKERS
    return Case(body(kind), (small((1, streams, size), 0), spaced((1, streams, 4 * size), 1), markers), (2,), tops=2)
