"""Layers that multiply features, normalise them, or are made of other layers."""

from __future__ import annotations

from hypothesis import strategies as some

from bpt.config.proto import bpt_pb2 as pb
from tests.support.gradients.cases import Case, body, cases, filled
from tests.support.gradients.strategies import axes_of, flags, shapes, sizes

phases = some.sampled_from([pb.TRAIN, pb.TEST])


@cases("InnerProduct", "MpiFc")
def _inner_product(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    outputs = draw(some.integers(1, 4))
    fields = {"num_output": outputs, "axis": draw(axes_of(shape)), "transpose": draw(flags), "bias_term": draw(flags)}
    return Case(body(kind, "inner_product_param", **fields), filled([shape]))


@cases("Attention")
def _attention(draw: some.DrawFn, kind: str) -> Case:
    samples, fits, channels = draw(some.tuples(*[some.integers(1, 3)] * 3))
    places = draw(shapes(least=1, most=3, largest=8))
    of_queries = places if draw(flags) else draw(shapes(least=1, most=3, largest=8))
    scale = draw(some.sampled_from([None, 0.0, 0.7, -1.3]))
    shapes_drawn = [(samples, fits, *of_queries), (samples, fits, *places), (samples, channels, *places)]
    return Case(body(kind, "attention_param", scale=scale), filled(shapes_drawn))


@cases("Softmax")
def _softmax(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    return Case(body(kind, "softmax_param", axis=draw(axes_of(shape))), filled([shape]))


@cases("LRN")
def _lrn(draw: some.DrawFn, kind: str) -> Case:
    fields = {
        "norm_region": draw(some.sampled_from(["ACROSS_CHANNELS", "WITHIN_CHANNEL"])),
        "local_size": draw(some.sampled_from([1, 3, 5, 7])),
        "alpha": draw(some.sampled_from([None, 0.3, 2.0])),
        "beta": draw(some.sampled_from([None, 0.5, 1.0, 1.3])),
        "k": draw(some.sampled_from([None, 0.5, 2.0])),
    }
    return Case(body(kind, "lrn_param", **fields), filled([draw(shapes(least=4, most=4))]))


@cases("MVN")
def _mvn(draw: some.DrawFn, kind: str) -> Case:
    # As Caffe, its diff takes the deviation for deviation + eps: with an eps this small that is calculus. Larger ones
    # are in test_rules.py.
    fields = {"normalize_variance": draw(flags), "across_channels": draw(flags)}
    return Case(body(kind, "mvn_param", **fields), filled([draw(shapes(least=1))]))


@cases("Normalize")
def _normalize(draw: some.DrawFn, kind: str) -> Case:
    fields = {"across_spatial": draw(flags), "channel_shared": draw(flags), "eps": draw(some.sampled_from([None, 0.1]))}
    return Case(body(kind, "norm_param", **fields), filled([draw(shapes())]))


@cases("BatchNorm")
def _batch_norm(draw: some.DrawFn, kind: str) -> Case:
    # The diff by the batch's statistics is calculus, through mean and variance. The stored ones, which each pass with
    # the batch's changes, are no part of that top.
    stored, phase = draw(some.sampled_from([None, True, False])), draw(phases)
    fields = {
        "use_global_stats": stored,
        "eps": draw(some.sampled_from([None, 0.1])),
        "moving_average_fraction": draw(some.sampled_from([None, 0.5])),
    }
    by_batch = phase == pb.TRAIN if stored is None else not stored
    return Case(
        body(kind, "batch_norm_param", **fields), filled([draw(shapes(least=1))]), phase=phase, by_batch=by_batch
    )


@cases("BN")
def _bn(draw: some.DrawFn, kind: str) -> Case:
    # As of BatchNorm, but for SegNet's tiny eps: a channel of one element, or of equal ones, is left to others.
    shape = (draw(some.integers(2, 4)), *draw(shapes(least=1, largest=15)))
    phase = draw(phases)
    if draw(some.booleans()):
        mode = draw(some.sampled_from(["LEARN", "INFERENCE"]))
        return Case(body(kind, "bn_param", bn_mode=mode), filled([shape]), phase=phase, by_batch=mode == "LEARN")
    fields = {
        "frozen": draw(some.booleans()),
        "eps": draw(some.sampled_from([None, 0.1])),
        "momentum": draw(some.sampled_from([None, 0.5])),
    }
    by_batch = phase == pb.TRAIN and not fields["frozen"]
    return Case(body(kind, "bn_param", **fields), filled([shape]), phase=phase, by_batch=by_batch)


@cases("Python")
def _python(draw: some.DrawFn, kind: str) -> Case:
    channels = draw(sizes)
    shape = (draw(some.integers(1, 3)), channels, *draw(shapes(least=2, most=2, largest=20)))
    fields = f'module: "tests.support.own_layers" layer: "Gate" param_str: "{channels}"'
    return Case(f'type: "{kind}" python_param {{ {fields} }}', filled([shape]))
