"""Texts of small nets whose loss is a sum."""

from __future__ import annotations


def inner_product(name: str, bottom: str, num_output: int, param: str, more: str = "") -> str:
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" param {{ {param} }}
        inner_product_param {{ num_output: {num_output} bias_term: false
                               weight_filler {{ type: "gaussian" }} {more} }} }}"""


def inputs(*shape: int) -> str:
    dims = "".join(f" dim: {size}" for size in shape)
    return f'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}'


def summed(bottom: str) -> str:
    """Makes the sum of a blob the loss."""
    return f'layer {{ name: "sum" type: "Flatten" bottom: "{bottom}" top: "sum" loss_weight: 1 }}'
