"""Checks that a layer's text is refused, with which words and at which place."""

from __future__ import annotations

from bpt.nn.layers import LAYERS
from tests.support.stand_ins import error_of, unmarked

Shape = tuple[int, ...]


def check_refusal(body: str, message: str, **bottoms: Shape) -> None:
    """The layer "L" with ``body`` and the bottoms named is refused with ``message`` at the place marked § in it."""
    tops = "".join(f' top: "{name}"' for name in bottoms)
    shapes = "".join(" shape {" + "".join(f" dim: {size}" for size in shape) + " }" for shape in bottoms.values())
    source = f'layer {{ name: "in" type: "Input" {tops} input_param {{ {shapes} }} }}\n' if bottoms else ""
    names = "".join(f' bottom: "{name}"' for name in bottoms)
    body = body if "bottom:" in body else f"{names} {body}"
    text, place = unmarked(f'{source}layer {{ name: "L" {body} }}')
    assert error_of(text, LAYERS) == f'{place}: layer "L": {message}'
