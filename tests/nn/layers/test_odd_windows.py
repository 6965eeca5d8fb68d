"""Windows, crops and grids at odd shapes: gradients by finite differences, and what must hold for any of them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from bpt.base.errors import LayerError
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer, randomise, shapes_of

Drawn = tuple[str, tuple[tuple[int, ...], ...]]
odd = settings(max_examples=60, deadline=None, derandomize=True)


@some.composite
def windows(draw: some.DrawFn) -> tuple[str, tuple[int, ...], int]:
    """The window of a convolution, a shape of 1 to 3 spatial axes, and a number of groups."""
    axes = draw(some.integers(1, 3))
    names = {"kernel_size": 1, "stride": 1, "pad": 0, "dilation": 1}
    text = " ".join(
        f"{name}: {draw(some.integers(least, least + 2))}" for name, least in names.items() for _ in range(axes)
    )
    group = draw(some.integers(1, 2))
    shape = (draw(some.integers(1, 2)), group * draw(some.integers(1, 2)))
    return text, (*shape, *(draw(some.integers(1, 5 - axes)) for _ in range(axes))), group


@odd
@given(windows(), some.integers(1, 2))
def test_deconvolution(drawn: tuple[str, tuple[int, ...], int], outputs: int) -> None:
    window, shape, group = drawn
    common = f"group: {group} bias_term: false {window}"
    body = f'type: "Deconvolution" convolution_param {{ num_output: {outputs * group} {common} }}'
    back = f'type: "Convolution" convolution_param {{ num_output: {shape[1]} {common} }}'
    try:
        (top,) = shapes_of(body, shape)
    except LayerError:
        return  # all pad
    layer = randomise(one_layer(body, shape)).double()
    convolution = randomise(one_layer(back, top)).double()
    x, y = spaced(shape), spaced(top, 1)
    # What one does is the transpose of what the other does: <deconv(x), y> = <x, conv(y)>.
    torch.testing.assert_close((layer(x) * y).sum(), (x * convolution(y)).sum())
    check_gradients(body.replace("bias_term: false", ""), shape)


@odd
@given(windows())
def test_im2col(drawn: tuple[str, tuple[int, ...], int]) -> None:
    window, shape, _ = drawn
    body = f'type: "Im2col" convolution_param {{ {window} }}'
    convolution = f'type: "Convolution" convolution_param {{ num_output: 1 bias_term: false {window} }}'
    try:
        shapes_of(body, shape)
    except LayerError:
        return  # no window fits
    layer = randomise(one_layer(convolution, shape)).double()
    x = spaced(shape)
    columns = one_layer(body, shape)(x)
    torch.testing.assert_close(torch.tensordot(layer.blobs[0].flatten(1), columns, ([1], [1])).movedim(0, 1), layer(x))
    check_gradients(body, shape)


@some.composite
def others(draw: some.DrawFn) -> Drawn:
    """A layer without a window of its own, and the shapes of its bottoms."""
    shape = tuple(draw(some.integers(1, most)) for most in (2, 2, 6, 5))
    kind = draw(some.sampled_from(["Crop", "SPP", "Interp", "Repeat", "Unpool"]))
    if kind == "Crop":
        offset = [draw(some.integers(0, size - 1)) for size in shape]
        size = tuple(draw(some.integers(1, size - cut)) for size, cut in zip(shape, offset, strict=True))
        listed = " ".join(f"offset: {cut}" for cut in offset)
        return f'type: "Crop" crop_param {{ axis: 0 {listed} }}', (shape, size)
    if kind == "SPP":
        pool = draw(some.sampled_from(["MAX", "AVE"]))
        return f'type: "SPP" spp_param {{ pool: {pool} pyramid_height: {draw(some.integers(1, 2))} }}', (shape,)
    if kind == "Interp":
        zoom, shrink, first = (draw(some.integers(1, 3)) for _ in range(3))
        fields = f"zoom_factor: {zoom} shrink_factor: {shrink} pad_beg: {1 - first}"
        return f'type: "Interp" interp_param {{ {fields} }}', (shape,)
    scale = f"scale_h: {draw(some.integers(1, 3))} scale_w: {draw(some.integers(1, 3))}"
    return f'type: "Upsample" upsample_param {{ {scale} }}', (shape,) if kind == "Repeat" else (shape, shape)


@odd
@given(others())
def test_others(drawn: Drawn) -> None:
    body, shapes = drawn
    try:
        (top,) = shapes_of(body, *shapes)
    except LayerError:
        return  # more bins than elements, or all cut off
    if "Upsample" in body and len(shapes) == 2:  # each value goes to a place of its own
        generator = torch.Generator().manual_seed(0)
        places = torch.stack(
            [torch.randperm(top[2] * top[3], generator=generator)[: shapes[0][2] * shapes[0][3]] for _ in range(top[1])]
        )
        mask = places.double().reshape(1, *shapes[0][1:]).expand(shapes[0])
        check_gradients(body, shapes[0], mask, constant=(1,))
        return
    check_gradients(body, *shapes, constant=(1,))
