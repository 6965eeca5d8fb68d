"""A net and the peaks of a machine for rooflines worked out by hand."""

from __future__ import annotations

from bpt.perf.timing.peaks import Peak, Peaks

# 4 samples of 5 to 3: 4·3·(2·5 + 1) = 132 operations; 20 + 18 + 12 floats are 200 bytes.
NET = """
layer { name: "in" type: "Input" top: "x" top: "y"
        input_param { shape { dim: 4 dim: 5 } shape { dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "relu" loss_weight: 1 }
layer { name: "end" type: "Silence" bottom: "y" }
"""


GIGA = 1e9


PEAKS = Peaks(
    Peak("product of 8 × 8 matrices", ((0.01 * GIGA,), (0.01 * GIGA,))),  # 132 operations: 0.0132 ms
    Peak("triad of arrays of 1 MiB", ((0.1 * GIGA,), (0.1 * GIGA,))),  # 200 bytes: 0.002 ms
)
