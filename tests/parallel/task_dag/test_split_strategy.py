"""Each type that is split by samples gives the numbers of the layer, and is split indeed."""

from __future__ import annotations

import pytest

from bpt.engine.operator import Operator
from bpt.nn.layers import LAYERS
from bpt.parallel.task_dag.split_strategy import SplitKind
from tests.support import task_dag_nets as nets

XAVIER = 'weight_filler { type: "xavier" }'
BESIDE = nets.layer("Pooling", "c", "a", "pooling_param { global_pooling: true pool: AVE }")
# Each reads a convolution's top, 6 x 3 x 9 x 8, and makes "z".
CASES = {
    "AbsVal": "",
    "ArgMax": "argmax_param { axis: 1 top_k: 3 }",
    "Attention": "",
    "Axpy": "",
    "BNLL": "",
    "Bias": "",
    "Clip": "clip_param { min: -0.5 max: 0.7 }",
    "Concat": "",
    "Convolution": f"convolution_param {{ num_output: 4 kernel_size: 3 {XAVIER} }}",
    "Deconvolution": f"convolution_param {{ num_output: 4 kernel_size: 3 stride: 2 {XAVIER} }}",
    "ConvolutionDepthwise": f"convolution_param {{ num_output: 3 kernel_size: 3 {XAVIER} }}",
    "Correlation": "correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 }",
    "Crop": "",
    "CropCenter": "crop_center_param { crop_size: [0, 0, 1, 1] }",
    "DepthwiseConvolution": f"convolution_param {{ num_output: 3 group: 3 kernel_size: 3 {XAVIER} }}",
    "ELU": "",
    "Eltwise": "",
    "Exp": "",
    "Flatten": "",
    "Im2col": "convolution_param { kernel_size: 2 }",
    "InnerProduct": f"inner_product_param {{ num_output: 4 axis: 2 {XAVIER} }}",
    "Interp": "interp_param { height: 5 width: 12 }",
    "LRN": "lrn_param { local_size: 3 alpha: 0.1 }",
    "Log": "log_param { shift: 9 }",
    "MVN": "",
    "Nms": "nms_param { num_parts: 3 max_peaks: 2 threshold: 0 }",
    "Normalize": "",
    "PReLU": "",
    "Permute": "permute_param { order: 0 order: 2 order: 3 order: 1 }",
    "Pooling": "pooling_param { kernel_size: 3 stride: 2 }",
    "Power": "power_param { power: 2 }",
    "ReLU": "",
    "ReLU6": "",
    "Reduction": "reduction_param { axis: 2 operation: MEAN }",
    "Reorg": "reorg_param { stride: 1 }",
    "SPP": "spp_param { pyramid_height: 2 }",
    "Scale": "scale_param { bias_term: true }",
    "ShuffleChannel": "shuffle_channel_param { group: 3 }",
    "Sigmoid": "",
    "Slice": "",
    "Softmax": "",
    "SpatialTransformer": "st_param { theta_1_1: 0.7 theta_1_2: 0.1 theta_1_3: 0.05 }",
    "Split": "",
    "Swish": "",
    "TanH": "",
    "Threshold": "",
    "Tile": "tile_param { tiles: 2 }",
    "Transpose": "transpose_param { dim: 0 dim: 2 dim: 3 dim: 1 }",
    "Unpooling": "unpooling_param { kernel_size: 2 stride: 2 }",
    "Upsample": "upsample_param { scale: 2 }",
}
BOTTOMS = {
    "Attention": "c c c",
    "Axpy": "a c c",
    "Concat": "c c",
    "Correlation": "c c",
    "Crop": "c c",
    "Eltwise": "c c",
    "SpatialTransformer": "c a",
}
TOPS = {"Slice": "z u v", "Split": "z u"}


def test_every_such_type_is_here() -> None:
    independent = {kind for kind in LAYERS if LAYERS[kind].sample_independent}
    assert set(CASES) == independent - {"MpiFc"} | {"Pooling", "SPP"}  # MpiFc is an InnerProduct; some of the last two


@pytest.mark.parametrize("kind", CASES)
def test_split_by_samples(kind: str) -> None:
    # MVN takes a bias away again, so that its gradient is rounding.
    before = nets.convolution(
        "c", "x", f"num_output: 3 kernel_size: 1 bias_term: {str(kind != 'MVN').lower()}", relu=False
    )
    text = before + (BESIDE if "a" in BOTTOMS.get(kind, "").split() else "")
    text += nets.layer(kind, BOTTOMS.get(kind, "c"), TOPS.get(kind, "z"), CASES[kind])
    if kind in ("ArgMax", "Nms", "Threshold"):  # hand no diff back, so nothing before them can learn
        text = nets.layer(kind, "x", "z", CASES[kind])
    graph = nets.image_net(text + nets.fully_connected("score", "z", 5) + nets.LOSS, 6)
    expected = nets.pass_over(Operator(nets.net_of(graph)), passes=2)
    operator = nets.dag_operator(nets.net_of(graph))
    nets.assert_same(nets.pass_over(operator, passes=2), expected, 1e-12)
    strategies = {node.type: block.strategy.kind for block in nets.plan_of(operator).blocks for node in block.nodes}
    assert strategies[kind] in (SplitKind.SAMPLES, SplitKind.FILTERS, SplitKind.AREAS)
