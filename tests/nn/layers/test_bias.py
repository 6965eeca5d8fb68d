from __future__ import annotations

from tests.support.one_layer import one_layer, one_layer_graph

Shape = tuple[int, ...]


def bias(settings: str = "") -> str:
    return f'type: "Bias" bias_param {{ {settings} }}'


def test_blobs() -> None:
    assert [param.shape for param in one_layer_graph(bias("num_axes: 2"), (2, 3, 4)).params] == [(3, 4)]
    assert one_layer_graph(bias(), (2, 3, 4), (3,)).params == ()
    assert one_layer(bias(), (1, 2)).blobs[0].tolist() == [0, 0]
    assert one_layer(bias("filler { value: 3 }"), (1, 2)).blobs[0].tolist() == [3, 3]
