"""``bpt export``: write a net as an ONNX model or as a program of torch, and check it against the net."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import (
    Parser,
    add_missing_weights,
    add_model,
    add_state,
    add_weights,
    missing_weights_of,
    need,
    need_one_process,
    positive,
    weights_of,
    words,
)

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "write a net as ONNX or for torch, and check it"
DESCRIPTION = """\
Writes a net with its weights as a file that runs without bpt: an ONNX model (.onnx), or a program of torch.export
(.pt2). Then it runs both on random inputs, the file by onnxruntime or torch, and prints the differences. It keeps the
file only if rounding explains them (1e-4 of the largest number).

  bpt export --model deploy.prototxt --weights W.caffemodel --output net.onnx
  bpt export --model deploy.prototxt --weights W.caffemodel --output net.pt2

The model is a deploy text, whose inputs are layers of type Input. From a training text bpt exports the deploy text that
bpt deploy makes. Inputs and outputs keep the names of their blobs. Batches may have any size if the layers allow that.
ONNX needs the extra onnx: pip install 'bpt[onnx]'. docs/export.md explains how each layer is exported.
"""
OPSET = 18


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt export``."""
    add_model(parser)
    add_weights(parser, "the weights: .caffemodel, or HDF5; default: those that the text's fillers draw")
    add_missing_weights(parser)
    parser.flag("output", "the file to write: it ends in .onnx or .pt2", metavar="FILE", default="")
    parser.flag("opset", f"the version of ONNX's operators; default {OPSET}", metavar="N", type=positive, default=OPSET)
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt export``: write a net as an ONNX model or as a program of torch."""
    need(arguments, "model", "the network to export")
    need(arguments, "output", "the file to write")
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.export.export_net import ExportRequest, export_net

    job.begin()
    request = ExportRequest(
        model=arguments.model,
        output=arguments.output,
        weights=weights_of(arguments),
        opset=arguments.opset,
        level=arguments.level,
        stages=words(arguments.stage),
        missing=missing_weights_of(arguments),
    )
    for line in export_net(request):
        print(line)
