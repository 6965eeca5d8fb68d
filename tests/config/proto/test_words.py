"""Words of other programs are answered with what they are called here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text
from bpt.config.proto.words import _OF_LAYERS, _OF_SOLVERS


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("learning_rate: 0.1", pb.SolverParameter(), "here it is base_lr"),
        ("Epochs: 3", pb.SolverParameter(), "here it is max_iter, which counts iterations: epochs × samples"),
        ("seed: 1", pb.SolverParameter(), "here it is random_seed"),
        ("amp: true", pb.SolverParameter(), "here it is precision: AUTO"),
        ("layer { out_channels: 3 }", pb.NetParameter(), "here it is convolution_param { num_output: … }"),
    ],
)
def test_what_it_is_here(text: str, message: pb.SolverParameter | pb.NetParameter, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "x.prototxt"
    path.write_text(text)
    with pytest.raises(PrototxtError, match=re.escape(f'"; {hint}')):
        read_text(str(path), type(message))


def test_all_that_is_named_is_there() -> None:
    for words, kind in ((_OF_SOLVERS, pb.SolverParameter), (_OF_LAYERS, pb.LayerParameter)):
        fields = kind.DESCRIPTOR.fields_by_name
        assert not set(words) & set(fields), "a field of its own needs no hint"
        for here in set(words.values()) - {_OF_SOLVERS["batch_size"]}:
            first = re.match(r"\w+", here)
            assert first and first[0] in fields
