"""Layers that move, join, cut or add up elements."""

from __future__ import annotations

import torch
from hypothesis import strategies as some

from tests.support.gradient_checker import spaced
from tests.support.gradients.cases import Case, body, cases, filled
from tests.support.gradients.strategies import axes_of, factors, flags, labels, shapes


@cases("Flatten")
def _flatten(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    axis, end = sorted(draw(some.tuples(*[some.integers(0, len(shape) - 1)] * 2)))
    axis, end = (place - len(shape) * draw(flags) for place in (axis, end))
    return Case(body(kind, "flatten_param", axis=axis, end_axis=end), filled([shape]))


@cases("Reshape")
def _reshape(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    start = draw(some.integers(0, len(shape)))
    number = draw(some.integers(0, len(shape) - start))
    replaced = list(shape[start : start + number])
    dims: list[int] = draw(some.permutations(replaced))
    for _ in range(draw(some.integers(0, 2))):  # put axes of 1 in
        dims.insert(draw(some.integers(0, len(dims))), 1)
    if len(dims) > 1 and draw(flags):  # make one of two axes
        first = draw(some.integers(0, len(dims) - 2))
        dims[first : first + 2] = [dims[first] * dims[first + 1]]
    for place in range(min(len(dims), len(replaced))):
        if dims[place] == replaced[place] and draw(flags):
            dims[place] = 0
    inferred = draw(flags) if dims else False
    if inferred:
        dims[draw(some.integers(0, len(dims) - 1))] = -1
    to_the_end = start + number == len(shape) and draw(flags)
    axis = start - (len(shape) + 1) * draw(flags)
    listed = " ".join(f"dim: {dim}" for dim in dims)
    fields = f"shape {{ {listed} }} axis: {axis} num_axes: {-1 if to_the_end else number}"
    return Case(f'type: "{kind}" reshape_param {{ {fields} }}', filled([shape]))


@cases("Permute")
def _permute(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    order = draw(some.permutations(range(len(shape))))[: draw(some.integers(0, len(shape)))]
    return Case(body(kind, "permute_param", order=order), filled([shape]))


@cases("Transpose")
def _transpose(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    return Case(body(kind, "transpose_param", dim=draw(some.permutations(range(len(shape))))), filled([shape]))


@cases("Reorg")
def _reorg(draw: some.DrawFn, kind: str) -> Case:
    stride, reverse = draw(some.integers(1, 2)), draw(flags)
    each = 1 if reverse else stride
    places = [draw(some.integers(1, 2)) * each for _ in range(2)]
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 2)) * stride**2, *places)
    return Case(body(kind, "reorg_param", stride=stride, reverse=reverse), filled([shape]))


@cases("ShuffleChannel")
def _shuffle_channel(draw: some.DrawFn, kind: str) -> Case:
    group, each = draw(some.tuples(*[some.integers(1, 5)] * 2))
    samples, *places = draw(shapes(least=1, most=4, largest=max(1, 60 // group // each)))
    return Case(body(kind, "shuffle_channel_param", group=group), filled([(samples, group * each, *places)]))


@cases("Tile")
def _tile(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    return Case(body(kind, "tile_param", axis=draw(axes_of(shape)), tiles=draw(some.integers(1, 3))), filled([shape]))


@cases("Slice")
def _slice(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    axis = draw(axes_of(shape))
    places = range(1, shape[axis])
    points = sorted(draw(some.sets(some.sampled_from(places), max_size=3))) if places else []
    old = draw(flags) and axis >= 0
    name = "slice_dim" if old else "axis"
    if shape[axis] % (len(points) + 1) == 0 and draw(flags):
        return Case(body(kind, "slice_param", **{name: axis}), filled([shape]), tops=len(points) + 1)
    return Case(body(kind, "slice_param", **{name: axis}, slice_point=points), filled([shape]), tops=len(points) + 1)


@cases("Concat")
def _concat(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1, largest=20))
    axis = draw(axes_of(shape))
    extents = draw(some.lists(some.integers(1, 3), min_size=1, max_size=3))
    place = axis % len(shape)
    bottoms = filled([(*shape[:place], extent, *shape[place + 1 :]) for extent in extents])
    return Case(body(kind, "concat_param", **{"concat_dim" if axis >= 0 and draw(flags) else "axis": axis}), bottoms)


@cases("Split")
def _split(draw: some.DrawFn, kind: str) -> Case:
    return Case(body(kind), filled([draw(shapes(least=0))]), tops=draw(some.integers(1, 3)))


@cases("Crop")
def _crop(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    axis = draw(axes_of(shape))
    size, offsets = list(draw(shapes(least=len(shape), most=len(shape)))), []
    for place in range(axis % len(shape), len(shape)):
        offsets.append(draw(some.integers(0, shape[place] - 1)))
        size[place] = draw(some.integers(1, shape[place] - offsets[-1]))
    given = draw(some.sampled_from([offsets, offsets[:1] if len(set(offsets)) == 1 else offsets]))
    given = [] if not any(offsets) and draw(flags) else given
    # Of the second bottom only the shape matters: its diff is 0, and so is the difference.
    return Case(body(kind, "crop_param", axis=axis, offset=given), filled([shape, tuple(size)]))


@cases("CropCenter")
def _crop_center(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    sizes = [draw(some.integers(0, (size - 1) // 2)) for size in shape]
    return Case(body(kind, "crop_center_param", crop_size=sizes), filled([shape]))


@cases("Reduction")
def _reduction(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    operation = draw(some.sampled_from(["SUM", "ASUM", "SUMSQ", "MEAN"]))  # at 0, where ASUM has a kink, no number is
    fields = {"operation": operation, "axis": draw(axes_of(shape)), "coeff": draw(factors)}
    return Case(body(kind, "reduction_param", **fields), filled([shape]))


@cases("Eltwise")
def _eltwise(draw: some.DrawFn, kind: str) -> Case:
    shape, number = draw(shapes(least=0, largest=20)), draw(some.integers(2, 4))
    operation = draw(some.sampled_from(["SUM", "PROD", "MAX"]))
    fields: dict[str, object] = {"operation": operation}
    if operation == "SUM" and draw(flags):
        fields["coeff"] = draw(some.lists(factors, min_size=number, max_size=number))
    if operation == "PROD":
        fields["stable_prod_grad"] = draw(flags)  # no number is 0, where "false" divides by 0
    # No two bottoms have equal numbers: there MAX takes one of them.
    return Case(body(kind, "eltwise_param", **fields), tuple(spaced((number, *shape), draw(some.integers(0, 9)))))


@cases("Axpy")
def _axpy(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(largest=25))
    ones = (1,) * draw(some.integers(0, 3))
    return Case(body(kind), filled([(*shape[:2], *ones), shape, shape]))


@cases("BatchReindex")
def _batch_reindex(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    indices = draw(labels((draw(some.integers(1, 4)),), shape[0]))
    return Case(body(kind), (*filled([shape]), indices), constant=(1,))


@cases("Filter")
def _filter(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1, largest=20))
    others = [(shape[0], *draw(shapes(least=0, most=2, largest=6))) for _ in range(draw(some.integers(0, 1)))]
    selector = draw(labels((shape[0], *(1,) * draw(some.integers(0, 2))), 2))
    number = 1 + len(others)
    bottoms = (*filled([shape, *others]), selector)
    # How many samples the tops have is for the selector to say; the graph knows the most.
    return Case(body(kind), bottoms, constant=(number,), tops=number, shapes_by_data=True)


@cases("Parameter")
def _parameter(draw: some.DrawFn, kind: str) -> Case:
    listed = " ".join(f"dim: {size}" for size in draw(shapes(least=0)))
    return Case(f'type: "{kind}" parameter_param {{ shape {{ {listed} }} }}', ())


@cases("Embed")
def _embed(draw: some.DrawFn, kind: str) -> Case:
    rows, outputs = draw(some.tuples(some.integers(1, 7), some.integers(1, 5)))
    indices = draw(labels(draw(shapes(least=0, most=4, largest=20)), rows))
    fraction = draw(some.sampled_from([0.0, 0.6]))  # it is cut off
    fields = {"input_dim": rows, "num_output": outputs, "bias_term": draw(flags)}
    return Case(body(kind, "embed_param", **fields), (indices + torch.tensor(fraction),), constant=(0,))
