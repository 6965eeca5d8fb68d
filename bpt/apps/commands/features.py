"""Write blobs of a trained net to LMDBs, batch by batch, as Caffe's extract_features does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.atomic import check_place
from bpt.base.errors import RunError, UsageError, UserError, did_you_mean
from bpt.base.log import warnings_on_stderr
from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.lmdb_file import LmdbWriter, check_new
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.state import MissingWeights

_REPORTED_EVERY = 1000  # records


def extract_features(
    weights: Sequence[str],
    model: str,
    blobs: Sequence[str],
    databases: Sequence[str],
    batches: int,
    device: torch.device,
    tell: Callable[[str], None] = lambda line: None,
    missing: MissingWeights = MissingWeights.REFUSE_RANDOM,
) -> list[int]:
    """Run the TEST net ``model`` on ``batches`` batches and write each of ``blobs`` to an LMDB of ``databases``.

    A record is a Datum of one sample, ``float_data`` of channels × height × width. Its key is its number in ten digits.
    Axes that a blob lacks have extent 1; if a blob has more than three, the middle axes become one. ``missing`` says
    how to treat layers that ``blobs`` depend on and that no weights file has. An unreadable image of a list is reported
    and has no record; the other images keep their numbers.

    Returns:
        The number of records of each database.

    Raises:
        UsageError: the numbers of blobs and databases differ, or two databases are the same.
        UserError: the net has no such blob, the blob has no sample axis, or the net has inputs without data.
        FileError: a file is wrong, the weights are those of another net or lack a layer, a database exists, or its
            folder is missing.
        WriteError: a database is not writable.
        RunError: some images are unreadable; the databases have the others.
    """
    if len(blobs) != len(databases):
        raise UsageError(
            f"{len(blobs)} blobs ({', '.join(blobs)}) need as many databases, but {len(databases)} are given"
        )
    if len({os.path.realpath(path) for path in databases}) < len(databases):
        raise UsageError(f"each blob needs a database of its own: {', '.join(databases)}")
    graph = build_graph_of(_skipping(file_plan(model, pb.TEST)))
    _check(graph, model, blobs)
    for path in databases:
        check_new(path)
        check_place(path)
    keep = frozenset(graph.blobs[blob].index for blob in blobs)
    net = make_net(graph, device, PassContext())
    left_out, numbers = 0, [0] * len(blobs)  # samples without a record; rows of each blob so far
    try:
        with warnings_on_stderr():
            load_trained(net, weights, model, missing=missing, asked=[graph.blobs[blob] for blob in blobs])
        with ExitStack() as stack:
            stack.enter_context(warnings_on_stderr())
            writers = [stack.enter_context(LmdbWriter(path)) for path in databases]
            stack.enter_context(net.fixed_parameters())
            lists = [layer for layer in net.layers if isinstance(layer, PrefetchingDataLayer)]
            sizes = {layer.share.total for layer in lists}
            for batch in range(batches):
                # Each batch has its own pass number, so that layers such as DummyData draw new numbers.
                net.enter(replace(net.context, pass_number=batch))
                values: dict[int, Tensor] = {}
                places = [layer.position for layer in lists]
                with torch.no_grad():
                    net.run(0, len(graph), values, keep, lambda tensor: tensor.to(device))
                bad = {row for layer, place in zip(lists, places, strict=True) for row in layer.replaced(place)}
                left_out += len(bad)
                for place, (blob, writer) in enumerate(zip(blobs, writers, strict=True)):
                    rows = values[graph.blobs[blob].index].float().cpu().numpy()
                    first = numbers[place]
                    numbers[place] += len(rows)
                    for row, value in enumerate(rows):
                        if row in bad and len(rows) in sizes:  # otherwise rows are not samples
                            continue
                        writer.put(_datum(value), f"{first + row:010d}")
                        if len(writer) % _REPORTED_EVERY == 0:
                            tell(f"Extracted features of {len(writer)} query images for feature blob {blob}")
    finally:
        net.close()
    if left_out:
        counts = zip(databases, writers, strict=True)
        written = ", ".join(f"{path} has {len(writer)} records" for path, writer in counts)
        raise RunError(f"{left_out} samples have unreadable images, which are named above; {written}")
    return [len(writer) for writer in writers]


def _skipping(plan: NetPlan) -> NetPlan:
    """Return the plan of a net whose lists skip images that cannot be read."""
    for layer in plan.source.param.layer:
        if layer.HasField("image_data_param"):
            layer.image_data_param.on_error = pb.ImageDataParameter.SKIP
    return plan


def _check(graph: LayerGraph, model: str, blobs: Sequence[str]) -> None:
    for blob in blobs:
        if blob not in graph.blobs:
            raise UserError(f'{model}: its TEST net has no blob "{blob}"{did_you_mean(blob, graph.blobs)}')
        if not graph.blobs[blob].shape:
            raise UserError(f'{model}: blob "{blob}" is one number for the whole batch, not a feature of each sample')
    if graph.inputs:
        raise UserError(f"{model}: its inputs ({', '.join(graph.inputs)}) have no data; use a net with a data layer")


def _datum(value: NDArray[np.float32]) -> pb.Datum:
    first, *rest = value.shape or (1,)
    last = rest[-1] if len(rest) > 1 else 1
    datum = pb.Datum(channels=first, height=value.size // max(1, first * last), width=last)
    datum.float_data.extend(value.ravel().tolist())
    return datum
