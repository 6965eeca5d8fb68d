"""Vision and neuron layers of one bottom."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.nn.layers import Layer
from tests.nn.layers.joining_layers import Case
from tests.support.one_layer import tops_of

LAYERS = {
    "convolution": 'type: "Convolution" convolution_param { num_output: 6 kernel_size: 3 group: 2 pad: 1 }',
    "max pooling": 'type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }',
    "max pooling, pad over half": 'type: "Pooling" pooling_param { kernel_size: 3 stride: 2 pad: 2 }',
    "max pooling, empty window": 'type: "Pooling" pooling_param { kernel_size: 1 stride: 4 }',
    "average pooling": 'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }',
    "average pooling, pad over half": 'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 2 }',
    "global average pooling": 'type: "Pooling" pooling_param { pool: AVE global_pooling: true }',
    "global max pooling": 'type: "Pooling" pooling_param { global_pooling: true }',
    "stochastic pooling": 'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 }',
    "inner product": 'type: "InnerProduct" inner_product_param { num_output: 5 }',
    "inner product, axis 2": 'type: "InnerProduct" inner_product_param { num_output: 5 axis: 2 transpose: true }',
    "relu": 'type: "ReLU"',
    "leaky relu": 'type: "ReLU" relu_param { negative_slope: 0.1 }',
    "sigmoid": 'type: "Sigmoid"',
    "tanh": 'type: "TanH"',
    "relu6": 'type: "ReLU6"',
    "leaky relu6": 'type: "ReLU6" relu_param { negative_slope: 0.1 }',
    "elu": 'type: "ELU" elu_param { alpha: 0.4 }',
    "swish": 'type: "Swish"',
    "swish, beta": 'type: "Swish" swish_param { beta: 1.7 }',
    "absolute value": 'type: "AbsVal"',
    "bnll": 'type: "BNLL"',
    "clip": 'type: "Clip" clip_param { min: 0.2 max: 0.7 }',
    "exp": 'type: "Exp" exp_param { base: 2 scale: 0.5 shift: 0.3 }',
    "log": 'type: "Log" log_param { base: 2 scale: 0.5 shift: 0.3 }',
    "normalize": 'type: "Normalize"',
    "normalize each place": 'type: "Normalize" norm_param { across_spatial: false channel_shared: false }',
    "shuffle channel": 'type: "ShuffleChannel" shuffle_channel_param { group: 2 }',
    "permute": 'type: "Permute" permute_param { order: 0 order: 2 order: 3 order: 1 }',
    "tile": 'type: "Tile" tile_param { tiles: 3 }',
    "reshape": 'type: "Reshape" reshape_param { shape { dim: 0 dim: 2 dim: -1 } }',
    "reshape, later axes": 'type: "Reshape" reshape_param { shape { dim: -1 dim: 21 } axis: 2 }',
    "prelu": 'type: "PReLU"',
    "lrn across": 'type: "LRN" lrn_param { local_size: 3 alpha: 0.5 }',
    "lrn within": 'type: "LRN" lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }',
    "dropout": 'type: "Dropout"',
    "batch norm": 'type: "BatchNorm"',
    "batch norm, global": 'type: "BatchNorm" batch_norm_param { use_global_stats: true }',
    "scale": 'type: "Scale" scale_param { bias_term: true }',
    "scale, two axes": 'type: "Scale" scale_param { axis: 1 num_axes: 2 }',
    "bias": 'type: "Bias"',
    "deconvolution": 'type: "Deconvolution" convolution_param { num_output: 6 kernel_size: 3 group: 2 stride: 2 }',
    "depthwise convolution": 'type: "DepthwiseConvolution" convolution_param { num_output: 4 group: 4 kernel_size: 3 }',
    "im2col": 'type: "Im2col" convolution_param { kernel_size: 3 stride: 2 pad: 1 dilation: 2 }',
    "max pyramid": 'type: "SPP" spp_param { pyramid_height: 2 }',
    "average pyramid": 'type: "SPP" spp_param { pyramid_height: 2 pool: AVE }',
    "random pyramid": 'type: "SPP" spp_param { pyramid_height: 1 pool: STOCHASTIC }',
    "interp": 'type: "Interp" interp_param { zoom_factor: 3 shrink_factor: 2 pad_end: -1 }',
    "upsample": 'type: "Upsample" upsample_param { scale: 2 }',
    "python": 'type: "Python" python_param { module: "tests.support.own_layers" layer: "Gate" }',
}
CASES = {name: Case(body, shape=(3, 4, 7, 6)) for name, body in LAYERS.items()}


def run(layer: Layer, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The top, and the gradients of its sum with weights from 0 to 1 by the bottom and the parameters."""
    leaves = [x.requires_grad_(), *(blob for blob in layer.blobs if blob.requires_grad)]
    (top,) = tops_of(layer, x)
    weights = torch.linspace(0, 1, top.numel()).reshape(top.shape)
    return top.detach(), list(torch.autograd.grad((top * weights).sum(), leaves))
