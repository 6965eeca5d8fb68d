"""Texts of layers, for nets in the shapes of well-known families."""

from __future__ import annotations


def conv(name: str, bottom: str, outputs: int, more: str = "kernel_size: 3 pad: 1", relu: bool = True) -> str:
    filler = 'weight_filler { type: "msra" }'
    text = (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
        f"convolution_param {{ num_output: {outputs} {more} {filler} }} }}\n"
    )
    return text + (f'layer {{ name: "{name}_r" type: "ReLU" bottom: "{name}" top: "{name}" }}\n' if relu else "")


def dense(name: str, bottom: str, outputs: int) -> str:
    filler = 'weight_filler { type: "xavier" }'
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" '
        f"inner_product_param {{ num_output: {outputs} {filler} }} }}\n"
    )
