"""A net of one weight that each iteration halves, so that all its losses are known: ½ · 0.25 ** iteration."""

from __future__ import annotations

# y = w x with w = 1 and x = 1: the loss is ½, and the first update makes w = 1 - ½ · 1.
NET = """
name: "one"
layer { name: "data" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 4 dim: 1 } data_filler { value: 1 } data_filler { value: 0 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 1 bias_term: false weight_filler { value: 1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: 4 display: 2 test_iter: 1 test_interval: 4
test_initialization: false random_seed: 1 snapshot_prefix: "one" engine: CONTIGUOUS
"""
