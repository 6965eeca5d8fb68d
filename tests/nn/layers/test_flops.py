"""How many floating-point operations the graph counts for a layer's forward pass."""

from __future__ import annotations

import pytest

from tests.support.one_layer import Shape, flops_of

CONV = "num_output: 6 kernel_size: 3 pad: 1 group: 2"
DECONV = "num_output: 6 kernel_size: 3 group: 2"
ATTENTION = [(2, 3, 4, 5), (2, 3, 2, 2, 2), (2, 7, 2, 2, 2)]
T, N, D, H = 3, 2, 4, 5
STEPS = [(T, N, D), (T, N)]  # of recurrent layers
REST = 10 * T * N * H
FLOPS = [
    ('type: "Accuracy"', [(4, 3, 5), (4, 5)], 2 * 60),
    ('type: "ArgMax"', [(2, 3, 4)], 24),
    # 2 · 20 · 8 pairs; each 3 products and sums, the softmax's 4, and 7 products and sums
    ('type: "Attention"', ATTENTION, 320 * (2 * 3 + 4 + 2 * 7)),
    ('type: "Axpy"', [(2, 3), (2, 3, 4), (2, 3, 4)], 48),
    ('type: "Bias"', [(2, 3, 4)], 24),
    ('type: "Concat"', [(2, 3), (2, 3)], 0),
    # 2 · (4 / 2 · 3 · 3) for each of 2 · 6 · 8 · 7 top elements, and one more for the bias
    (f'type: "Convolution" convolution_param {{ {CONV} }}', [(2, 4, 8, 7)], 672 * (36 + 1)),
    (f'type: "Convolution" convolution_param {{ {CONV} bias_term: false }}', [(2, 4, 8, 7)], 672 * 36),
    ('type: "Crop"', [(2, 3, 4, 4), (2, 3, 2, 2)], 0),
    # Each of 2 · 4 · 3 · 2 elements goes through 6 / 2 · 9 weights, and each of 2 · 6 · 5 · 4 tops gets a bias.
    (f'type: "Deconvolution" convolution_param {{ {DECONV} }}', [(2, 4, 3, 2)], 2 * 48 * 27 + 240),
    (f'type: "Deconvolution" convolution_param {{ {DECONV} bias_term: false }}', [(2, 4, 3, 2)], 2 * 48 * 27),
    ('type: "Eltwise"', [(4, 5), (4, 5), (4, 5)], 2 * 20),
    ('type: "Eltwise" eltwise_param { coeff: 1 coeff: 2 }', [(4, 5), (4, 5)], (1 + 2) * 20),
    ('type: "EuclideanLoss"', [(4, 5), (4, 5)], 3 * 20),
    ('type: "Flatten"', [(2, 3, 4)], 0),
    # 3 samples of 12 inputs and 4 outputs: 2 · 3 · 12 · 4, and 3 · 4 for the bias
    ('type: "InnerProduct" inner_product_param { num_output: 4 }', [(3, 2, 3, 2)], 288 + 12),
    ('type: "InnerProduct" inner_product_param { num_output: 4 bias_term: false }', [(3, 2, 3, 2)], 288),
    ('type: "Interp" interp_param { height: 4 width: 5 }', [(2, 3, 7, 7)], 7 * 120),
    # square, power, product and the multiply-add with alpha and k: 5; and a sum of 3, or of 3 · 3
    ('type: "LRN" lrn_param { local_size: 3 }', [(2, 3, 4, 5)], 120 * (3 + 5)),
    ('type: "LRN" lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }', [(2, 3, 4, 5)], 120 * (9 + 5)),
    # Products of T·N rows: 4 gates of H numbers from D inputs and H states; RNN one gate, and the output.
    (f'type: "LSTM" recurrent_param {{ num_output: {H} }}', STEPS, 2 * T * N * 4 * H * (D + H) + REST),
    (f'type: "RNN" recurrent_param {{ num_output: {H} }}', STEPS, 2 * T * N * H * (D + H + H) + REST),
    (f'type: "LSTM" recurrent_param {{ num_output: {H} }}', [*STEPS, (N, 7)],
     2 * T * N * 4 * H * (D + H) + REST + 2 * N * 7 * 4 * H),
    ('type: "MVN"', [(2, 3, 4, 5)], 600),
    ('type: "MVN" mvn_param { normalize_variance: false }', [(2, 3, 4, 5)], 240),
    ('type: "Normalize"', [(2, 3, 4)], 96),
    ('type: "Permute" permute_param { order: 0 order: 2 order: 1 }', [(2, 3, 4)], 0),
    # 4 · 5 windows of 3 · 3 in each of 2 · 3 channels
    ('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', [(2, 3, 8, 10)], 6 * 20 * 9),
    ('type: "Python" python_param { module: "tests.support.own_layers" layer: "Gate" }', [(2, 4, 3, 1)], 24),
    ('type: "ReLU"', [(2, 3, 4)], 24),
    ('type: "Reduction"', [(2, 3, 4)], 24),
    ('type: "Reduction" reduction_param { operation: SUMSQ }', [(2, 3, 4)], 48),
    ('type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }', [(2, 3, 4)], 0),
    ('type: "SPP" spp_param { pyramid_height: 3 }', [(2, 3, 4, 7)], 3 * 168),
    ('type: "Scale"', [(2, 3, 4)], 24),
    ('type: "Scale" scale_param { bias_term: true }', [(2, 3, 4)], 48),
    ('type: "ShuffleChannel" shuffle_channel_param { group: 2 }', [(2, 4, 3)], 0),
    ('type: "Slice"', [(2, 3)], 0),
    ('type: "Softmax"', [(2, 3)], 4 * 6),
    ('type: "SoftmaxWithLoss"', [(4, 5, 6), (4, 6)], 4 * 120),
    ('type: "Split"', [(2, 3)], 0),
    ('type: "Tile" tile_param { tiles: 5 }', [(2, 3, 4)], 0),
    ('type: "Upsample" upsample_param { scale: 2 }', [(1, 1, 2, 3)], 24),
    ('type: "Upsample" upsample_param { scale: 2 }', [(1, 1, 2, 3), (1, 1, 2, 3)], 6),
]  # fmt: skip


@pytest.mark.parametrize(("body", "bottoms", "flops"), FLOPS)
def test_flops(body: str, bottoms: list[Shape], flops: int) -> None:
    assert flops_of(body, *bottoms) == flops
