"""Pipelines whose first layers tests place on stages."""

from __future__ import annotations

from pathlib import Path

TREE = "parallel_param { exchange: TREE }"


RING = "parallel_param { exchange: RING }"


CGDP = "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }"


# Where each further stage begins, by the number of stages.
NORMALISED = {2: ("fc",), 3: ("bn", "fc"), 4: ("bn", "fc", "ip")}


BRANCHED = {2: ("sum",), 3: ("head", "both"), 4: ("head", "sum", "point")}


def place(**stages: int) -> None:
    """Let layers of the net, and those behind them, be on these stages."""
    net = Path("net.prototxt")
    text = net.read_text()
    for layer, stage in stages.items():
        assert text.count(f'{{ name: "{layer}"') == 1
        text = text.replace(f'{{ name: "{layer}"', f'{{ name: "{layer}" parallel_param {{ stage: {stage} }}')
    Path(f"{max(stages.values()) + 1}.prototxt").write_text(text)


def place_all(starts: dict[int, tuple[str, ...]]) -> None:
    for layers in starts.values():
        place(**{layer: stage for stage, layer in enumerate(layers, 1)})
