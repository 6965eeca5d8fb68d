"""Layers that look at one element at a time, with and without parameters.

At 0 ReLU, ReLU6, PReLU, ELU and AbsVal have Caffe's one of two derivatives, and so have Clip and ReLU6 at their bounds:
no drawn number is there, and none is so near that a finite difference would reach over.
"""

from __future__ import annotations

from hypothesis import strategies as some

from bpt.config.proto import bpt_pb2 as pb
from tests.support.gradients.cases import Case, body, cases, filled, positive
from tests.support.gradients.strategies import axes_of, factors, flags, shapes

phases = some.sampled_from([pb.TRAIN, pb.TEST])
any_shape = shapes(least=0)


@cases("AbsVal", "Sigmoid", "TanH")
def _plain(draw: some.DrawFn, kind: str) -> Case:
    return Case(body(kind), filled([draw(any_shape)], draw(some.sampled_from([1.0, 3.0]))))


@cases("BNLL")
def _bnll(draw: some.DrawFn, kind: str) -> Case:
    # Above 50 it is x itself, with derivative 1; calculus differs by e^-50.
    return Case(body(kind), filled([draw(any_shape)], draw(some.sampled_from([1.0, 40.0]))))


@cases("ReLU", "ReLU6")
def _relu(draw: some.DrawFn, kind: str) -> Case:
    slope = draw(some.sampled_from([0.0, 0.1, 1.5, -0.5]))
    return Case(body(kind, "relu_param", negative_slope=slope), filled([draw(any_shape)], 7.03))


@cases("ELU")
def _elu(draw: some.DrawFn, kind: str) -> Case:
    alpha = draw(some.sampled_from([0.0, 0.4, 1.0, 2.5, -0.5]))
    return Case(body(kind, "elu_param", alpha=alpha), filled([draw(any_shape)]))


@cases("Swish")
def _swish(draw: some.DrawFn, kind: str) -> Case:
    return Case(body(kind, "swish_param", beta=draw(factors)), filled([draw(any_shape)]))


@cases("PReLU")
def _prelu(draw: some.DrawFn, kind: str) -> Case:
    return Case(body(kind, "prelu_param", channel_shared=draw(flags)), filled([draw(shapes())]))


@cases("Clip")
def _clip(draw: some.DrawFn, kind: str) -> Case:
    least, most = draw(some.sampled_from([(-0.7123, 0.9123), (-9.0, 0.2123), (0.3123, 0.3123), (-9.0, 9.0)]))
    return Case(body(kind, "clip_param", min=least, max=most), filled([draw(any_shape)]))


@cases("Exp")
def _exp(draw: some.DrawFn, kind: str) -> Case:
    base = draw(some.sampled_from([None, -1.0, 0.5, 1.0, 2.0, 10.0]))
    settings = body(kind, "exp_param", base=base, scale=draw(factors), shift=draw(some.sampled_from([0.0, 0.7])))
    return Case(settings, filled([draw(any_shape)]))


@cases("Log")
def _log(draw: some.DrawFn, kind: str) -> Case:
    base = draw(some.sampled_from([None, -1.0, 0.5, 2.0, 10.0]))
    scale, shift = draw(some.sampled_from([(1.0, 0.0), (0.5, 0.0), (2.0, 0.3), (-1.0, 5.0)]))  # of numbers above 0
    return Case(body(kind, "log_param", base=base, scale=scale, shift=shift), (positive(draw(any_shape)),))


@cases("Power")
def _power(draw: some.DrawFn, kind: str) -> Case:
    power = draw(some.sampled_from([0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -1.5]))
    scale = draw(some.sampled_from([0.0, 1.0, -0.5, 2.0]))
    whole = power >= 0 and power == int(power)
    shift = draw(some.sampled_from([0.0, -0.3, 5.0] if whole else [5.0]))  # else only numbers above 0 have a power
    return Case(body(kind, "power_param", power=power, scale=scale, shift=shift), filled([draw(any_shape)]))


@cases("Dropout")
def _dropout(draw: some.DrawFn, kind: str) -> Case:
    # The mask belongs to the iteration: it is the same in all passes of a check.
    ratio = draw(some.sampled_from([0.0, 0.3, 0.5, 0.9]))
    fields = {"dropout_ratio": ratio, "scale_train": draw(flags)}
    return Case(body(kind, "dropout_param", **fields), filled([draw(any_shape)]), phase=draw(phases))


@cases("Scale", "Bias")
def _coefficients(draw: some.DrawFn, kind: str) -> Case:
    group = f"{kind.lower()}_param"
    shape = draw(shapes(least=1))
    axis = draw(axes_of(shape))
    start = axis % len(shape)
    number = draw(some.integers(0, len(shape) - start))
    fields: dict[str, object] = {"axis": axis, "bias_term": draw(flags) if kind == "Scale" else None}
    if draw(flags):
        return Case(body(kind, group, **fields), filled([shape, shape[start : start + number]]))
    fields["num_axes"] = draw(some.sampled_from([number, -1]))
    return Case(body(kind, group, **fields), filled([shape]))
