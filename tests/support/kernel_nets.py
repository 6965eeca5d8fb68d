"""A net whose convolution and InnerProduct are large enough for trials of algorithms, and times of its kernels."""

from __future__ import annotations

from bpt.engine.algorithm_cache import KernelTimes
from bpt.nn.kernels.algorithm import Algorithm, KernelRole

NET = """
name: "kernels"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 32 dim: 1 dim: 20 dim: 20 } shape { dim: 32 }
                           data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
        convolution_param { num_output: 8 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
layer { name: "small" type: "InnerProduct" bottom: "ip" top: "small"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "small" bottom: "y" top: "loss" }
"""
CONV, IP = 1, 2
"""The layers by index. "conv" has 2 · 32 · 16² · 8 · 25 operations, 3.3 million, and "ip" 4.2 million."""


def times(torch: float, patches: float, role: KernelRole = KernelRole.FORWARD) -> KernelTimes:
    """Times of one kernel by two algorithms, in seconds."""
    return {role: {Algorithm.TORCH: torch, Algorithm.PATCHES: patches}}
