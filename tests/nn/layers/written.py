"""Python layers as the tests write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bpt.base.errors import RunError
from bpt.nn.layers import Layer

Write = Callable[[str], str]
NN = "import torch\nfrom torch import nn\n"
CLASS = NN + "class L(nn.Module):\n"


def body(module: str, layer: str = "L", more: str = "") -> str:
    return f'type: "Python" python_param {{ module: "{module}" layer: "{layer}" {more} }}'


def run_error(layer: Layer, *bottoms: torch.Tensor) -> str:
    with pytest.raises(RunError) as caught:
        layer(*bottoms)
    return str(caught.value)
