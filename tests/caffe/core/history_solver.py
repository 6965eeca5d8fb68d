"""A net of one product, and a solver that tests and displays."""

from __future__ import annotations

from tests.support.pycaffe_texts import inner_product, inputs, layer

# The loss is Σ (W x + b) of an input that stays 0: the sum of the biases, each of which falls by the rate in each step.
NET = inputs(x=(1, 3)) + inner_product("x", "ip", 2) + layer("Reduction", "ip", "sum", "loss_weight: 1")


NET += layer("Power", "ip", "twice", "power_param { scale: 2 } include { phase: TEST }")


SOLVER = 'net: "net.prototxt" base_lr: 0.5 lr_policy: "step" gamma: 0.5 stepsize: 2 max_iter: 4 snapshot_prefix: "s"\n'
