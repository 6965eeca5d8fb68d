"""Layers that slide or lay windows over spatial axes."""

from __future__ import annotations

import torch
from hypothesis import strategies as some

from bpt.config.proto import bpt_pb2 as pb
from tests.support.gradients.cases import Case, body, cases, filled, positive
from tests.support.gradients.strategies import flags, shapes, sizes
from tests.support.one_layer import Shape

phases = some.sampled_from([pb.TRAIN, pb.TEST])


@some.composite
def planes(draw: some.DrawFn, axes: int, largest: int = 40) -> Shape:
    """Spatial axes."""
    return draw(shapes(least=axes, most=axes, largest=largest))


@some.composite
def window_fields(draw: some.DrawFn, places: Shape) -> dict[str, object]:
    """``kernel_size``, ``stride``, ``pad`` and ``dilation`` of a ``convolution_param``, in all ways of writing them."""

    def kernels(size: int) -> int:
        return draw(some.one_of(some.just(size), some.integers(1, 3)))  # as large as the bottom, or small

    def spread(name: str, draw_one: some.SearchStrategy[int]) -> dict[str, object]:
        if len(places) == 2 and name != "dilation" and draw(flags):
            stem = name.removesuffix("_size")
            return {f"{stem}_h": draw(draw_one), f"{stem}_w": draw(draw_one)}
        return {name: [draw(draw_one) for _ in range(draw(some.sampled_from([1, len(places)])))]}

    fields = spread("stride", some.integers(1, 3)) | spread("pad", some.integers(0, 2))
    fields |= spread("dilation", some.sampled_from([1, 1, 2]))
    if len(places) == 2 and draw(flags):
        return fields | {"kernel_h": kernels(places[0]), "kernel_w": kernels(places[1])}
    if len(set(places)) == 1 and draw(flags):
        return fields | {"kernel_size": kernels(places[0])}
    return fields | {"kernel_size": [kernels(size) for size in places]}


@cases("Convolution", "ConvolutionDepthwise", "Deconvolution", "DepthwiseConvolution", "Im2col")
def _convolution(draw: some.DrawFn, kind: str) -> Case:
    axes = draw(some.integers(1, 3))
    places = draw(planes(axes, 24))
    leading = draw(some.sampled_from([(), (1,), (2,), (3,), (2, 1), (1, 2)])) if axes < 3 else (draw(sizes) % 3 + 1,)
    group, inputs, outputs = (draw(some.integers(1, most)) for most in (3, 2, 2))
    if "Depthwise" in kind:
        group, inputs = draw(some.integers(1, 4)), 1
    if kind == "ConvolutionDepthwise":
        outputs = 1
    axis = draw(some.sampled_from([len(leading), -1 - axes]))
    fields = draw(window_fields(places)) | {"axis": axis if axis != 1 or draw(flags) else None}
    if kind != "Im2col":  # it reads the window only
        fields |= {"num_output": group * outputs, "group": group, "bias_term": draw(flags)}
    number = draw(some.sampled_from([1, 1, 2])) if kind != "Im2col" else 1
    shape = (*leading, group * inputs, *places)
    return Case(body(kind, "convolution_param", **fields), filled([shape] * number), tops=number)


@cases("Pooling")
def _pooling(draw: some.DrawFn, kind: str) -> Case:
    axes = draw(some.integers(1, 3))
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 3)), *draw(planes(axes, 24)))
    method = draw(some.sampled_from(["MAX", "AVE", "STOCHASTIC"]))
    fields: dict[str, object] = {"pool": method, "round_mode": draw(some.sampled_from([None, "CEIL", "FLOOR"]))}
    fields |= {"avg_include_pad": draw(some.sampled_from([None, False]))}
    if draw(some.integers(0, 4)) == 0:
        fields |= {"global_pooling": True}
    else:
        pads = some.integers(0, 2) if method != "STOCHASTIC" else some.just(0)
        kernels = some.one_of(some.sampled_from(shape[2:]), some.integers(1, 4))
        for name, one in (("kernel", kernels), ("stride", some.integers(1, 4)), ("pad", pads)):
            if axes == 2 and draw(flags):
                fields |= {f"{name}_h": draw(one), f"{name}_w": draw(one)}
            else:
                fields["kernel_size" if name == "kernel" else name] = draw(one)
    # All numbers are apart: no window has two maxima. STOCHASTIC is for numbers of at least 0; its picks belong to the
    # iteration, so that they are the same in all passes of a check (but where one is on the verge, which none is).
    bottoms = (positive(shape),) if method == "STOCHASTIC" else filled([shape])
    tops = 2 if method == "MAX" and draw(flags) else 1
    return Case(body(kind, "pooling_param", **fields), bottoms, tops=tops, phase=draw(phases))


@cases("SPP")
def _spp(draw: some.DrawFn, kind: str) -> Case:
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 2)), *draw(planes(draw(some.integers(1, 3)))))
    method = draw(some.sampled_from(["MAX", "AVE", "STOCHASTIC"]))
    fields = {"pool": method, "pyramid_height": draw(some.integers(1, 3))}
    bottom = positive(shape) if method == "STOCHASTIC" else filled([shape])[0]
    return Case(body(kind, "spp_param", **fields), (bottom,), phase=draw(phases))


@cases("Interp")
def _interp(draw: some.DrawFn, kind: str) -> Case:
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 2)), *draw(planes(2)))
    fields: dict[str, object] = {
        "pad_beg": -draw(some.sampled_from([0, 0, 1])),
        "pad_end": -draw(some.sampled_from([0, 0, 1])),
    }
    way = draw(some.sampled_from(["sizes", "factors", "bottom"]))
    if way == "bottom":  # only its shape matters: its diff is 0, and so is the difference
        other = (*draw(shapes(least=2, most=2, largest=4)), *draw(planes(2, 20)))
        return Case(body(kind, "interp_param", **fields), filled([shape, other]))
    if way == "sizes":
        fields |= {"height": draw(sizes), "width": draw(sizes)}
    else:
        zoom, shrink = draw(some.sampled_from([(2, None), (None, 2), (3, 2), (1, 1), (None, 3)]))
        fields |= {"zoom_factor": zoom, "shrink_factor": shrink}
    return Case(body(kind, "interp_param", **fields), filled([shape]))


@cases("Upsample")
def _upsample(draw: some.DrawFn, kind: str) -> Case:
    axes = draw(some.integers(1, 3))
    shape = (draw(some.integers(1, 2)), draw(some.integers(1, 2)), *draw(planes(axes, 20)))
    scales = [draw(some.integers(1, 3)) for _ in range(axes)] if axes == 2 else [draw(some.integers(1, 3))] * axes
    if axes == 2 and draw(flags):
        fields: dict[str, object] = {"scale_h": scales[0], "scale_w": scales[1]}
    else:
        scales = scales[:1] * axes
        fields = {"scale": scales[0]}
    if draw(flags):
        return Case(body(kind, "upsample_param", **fields), filled([shape]))
    sizes_of_top = [size * scale for size, scale in zip(shape[2:], scales, strict=True)]
    if axes == 2 and scales == [2, 2] and draw(flags):
        fields |= {"pad_out_h": True}
        sizes_of_top[0] -= 1
    elif axes == 2 and draw(flags):
        sizes_of_top = [draw(some.integers(size, size + 3)) for size in shape[2:]]
        fields |= {"upsample_h": sizes_of_top[0], "upsample_w": sizes_of_top[1]}
    plane, own = torch.Size(sizes_of_top).numel(), torch.Size(shape[2:]).numel()
    # Each element has a place of its own (several at one place all get its diff: SegNet's rule); or none, -1.
    generator = torch.Generator().manual_seed(draw(some.integers(0, 99)))
    rows = [torch.randperm(plane + 1, generator=generator)[:own] - 1 for _ in range(shape[0] * shape[1])]
    mask = torch.stack(rows).double().reshape(shape)
    return Case(body(kind, "upsample_param", **fields), (*filled([shape]), mask), constant=(1,))
