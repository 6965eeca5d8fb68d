"""Each command of docs/migration.md runs as it stands there, in a folder with the files that it names."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bpt
from bpt.cli.main import main
from bpt.data.annotated import AnnotatedSource
from tests.data.test_annoset import XML
from tests.mpi.mpirun import mpi_environment, needs_mpi
from tests.test_docs import GUIDES, bpt_commands, repository  # noqa: F401  (a fixture)

GUIDE = next(guide for guide in GUIDES if guide.name == "migration.md")
RANKS = ["mpirun", "-n", "2", "--oversubscribe"]
NET = """
layer { name: "data" type: "AnnotatedData" top: "data" top: "label" data_param { source: "trainval_lmdb" batch_size: 1 }
  transform_param { resize_param { height: 16 width: 16 } } }
layer { name: "conv1_1" type: "Convolution" bottom: "data" top: "conv1_1"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "mean" type: "Reduction" bottom: "conv1_1" top: "loss" loss_weight: 1 }
layer { name: "unread" type: "Silence" bottom: "label" }
"""
SOLVER = 'net: "net_ssd.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "ssd"'
WEIGHTS = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: [1, 3, 16, 16] } } }
layer { name: "conv1_1" type: "Convolution" bottom: "data" top: "conv1_1"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def folder(repository: None) -> Path:  # noqa: F811
    """The repository after ``make demo``, and what people bring along: weights, VOC's images, a solver."""
    here = Path()
    weights = "snapshots/lenet/lenet_iter_1000.caffemodel"
    assert main(["convert", "--weights", weights, "--output", "nvidia.caffemodel", "--raw", "FLOAT16"]) == 0
    for part, ending in (("JPEGImages", "jpg"), ("Annotations", "xml")):
        (here / "VOCdevkit" / part).mkdir(parents=True)
        for number in range(3):
            path = here / "VOCdevkit" / part / f"{number}.{ending}"
            path.write_text(XML) if ending == "xml" else Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(path)
    lines = (f"JPEGImages/{number}.jpg Annotations/{number}.xml\n" for number in range(3))
    (here / "trainval.txt").write_text("".join(lines))
    (here / "labelmap_voc.prototxt").write_text('item { name: "cat" label: 1 } item { name: "18" label: 2 }')
    (here / "net_ssd.prototxt").write_text(NET)
    (here / "solver.prototxt").write_text(SOLVER)
    (here / "weights.prototxt").write_text(WEIGHTS)
    bpt.Net("weights.prototxt", bpt.TEST).save("VGG_ILSVRC_16_layers_fc_reduced.caffemodel")
    return here


@pytest.mark.slow
@needs_mpi
@pytest.mark.usefixtures("folder")
def test_commands_run() -> None:
    commands = bpt_commands(GUIDE)
    assert len(commands) == 4
    bin_ = Path(sys.executable).parent
    environment = mpi_environment({"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"})
    launched = [line for line in GUIDE.read_text().splitlines() if line.startswith("mpirun -n 2 bpt ")]
    for words in commands:
        of_ranks = any(shlex.split(line)[4:] == words for line in launched)
        done = subprocess.run(
            [*(RANKS if of_ranks else []), "bpt", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"bpt {shlex.join(words)}\n{done.stderr}"
    assert len(launched) == 1 and Path("snapshots/lenet/lenet_iter_1000.solverstate").exists()
    source = AnnotatedSource("trainval_lmdb")
    assert len(source) == 3 and source.has_boxes()
    assert sorted(Path().glob("ssd_iter_2.*"))
    deploy = "prototxt/lenet/deploy.prototxt"
    plain, raw = (bpt.Net(deploy, f"{name}.caffemodel", bpt.TEST) for name in ("plain", "nvidia"))
    np.testing.assert_array_equal(plain.params["conv1"][0].data, raw.params["conv1"][0].data)
