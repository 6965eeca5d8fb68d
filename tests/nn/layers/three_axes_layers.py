"""The layers that 3-D networks use, on volumes of odd sizes."""

from __future__ import annotations

from tests.nn.layers.joining_layers import Case

SHAPE = (3, 4, 5, 7, 3)
CONVOLUTION = 'type: "Convolution" convolution_param'
POOLING = 'type: "Pooling" pooling_param'
LAYERS = {
    "convolution": f"{CONVOLUTION} {{ num_output: 6 kernel_size: 3 pad: 1 }}",
    "convolution, stride 2": f"{CONVOLUTION} {{ num_output: 6 kernel_size: 3 pad: 1 stride: 2 bias_term: false }}",
    "convolution, groups": f"{CONVOLUTION} {{ num_output: 6 kernel_size: 1 stride: 2 group: 2 }}",
    "convolution, per axis": f"""{CONVOLUTION} {{
        num_output: 2 kernel_size: 1 kernel_size: 5 kernel_size: 2 pad: 0 pad: 3 pad: 1 dilation: 1 dilation: 2
        dilation: 1 stride: 2 stride: 1 stride: 3 }}""",
    "max pooling": f"{POOLING} {{ kernel_size: 3 stride: 2 }}",
    "max pooling, pad over half": f"{POOLING} {{ kernel_size: 3 stride: 2 pad: 2 }}",
    "max pooling, empty window": f"{POOLING} {{ kernel_size: 1 stride: 4 }}",
    "average pooling": f"{POOLING} {{ pool: AVE kernel_size: 3 stride: 2 pad: 1 }}",
    "average pooling, pad over half": f"{POOLING} {{ pool: AVE kernel_size: 3 stride: 2 pad: 2 }}",
    "global average pooling": f"{POOLING} {{ pool: AVE global_pooling: true }}",
    "global max pooling": f"{POOLING} {{ global_pooling: true }}",
    "stochastic pooling": f"{POOLING} {{ pool: STOCHASTIC kernel_size: 3 stride: 2 }}",
    "batch norm": 'type: "BatchNorm"',
    "batch norm, global": 'type: "BatchNorm" batch_norm_param { use_global_stats: true }',
    "scale": 'type: "Scale" scale_param { bias_term: true }',
    "scale by one number": 'type: "Scale" scale_param { axis: 0 num_axes: 0 }',
    "scale, two axes": 'type: "Scale" scale_param { axis: 2 num_axes: 2 bias_term: true }',
    "bias": 'type: "Bias"',
    "relu": 'type: "ReLU"',
    "dropout": 'type: "Dropout"',
    "inner product": 'type: "InnerProduct" inner_product_param { num_output: 5 }',
    "softmax": 'type: "Softmax"',
    "flatten": 'type: "Flatten"',
}
CASES = {f"3-D, {name}": Case(body, shape=SHAPE) for name, body in LAYERS.items()}
