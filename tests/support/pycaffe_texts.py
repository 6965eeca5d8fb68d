"""Small networks for the Python interface's tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write(folder: Path, text: str, name: str = "net.prototxt") -> str:
    """Put ``text`` into a file; returns its path."""
    (folder / name).write_text(text)
    return str(folder / name)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def inputs(**shapes: tuple[int, ...]) -> str:
    """An Input layer called "in"."""
    tops = "".join(f' top: "{name}"' for name in shapes)
    each = "".join(" shape {" + "".join(f" dim: {size}" for size in shape) + " }" for shape in shapes.values())
    return f'layer {{ name: "in" type: "Input" {tops} input_param {{ {each} }} }}\n'


def layer(kind: str, bottoms: str, tops: str = "", more: str = "", name: str = "") -> str:
    """A layer; it is called like its top, if it has a single one."""
    read = "".join(f' bottom: "{bottom}"' for bottom in bottoms.split())
    made = "".join(f' top: "{top}"' for top in tops.split())
    return f'layer {{ name: "{name or tops}" type: "{kind}" {read} {made} {more} }}\n'


def inner_product(bottom: str, top: str, num_output: int, more: str = "") -> str:
    filler = 'weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "uniform" }'
    return layer("InnerProduct", bottom, top, f"inner_product_param {{ num_output: {num_output} {filler} }} {more}")
