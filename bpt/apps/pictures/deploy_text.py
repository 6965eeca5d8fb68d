"""Write the deploy text of a train text, for ``bpt deploy`` and ``bpt new``."""

from __future__ import annotations

import logging
import os
import textwrap
from collections.abc import Iterator, Sequence

from bpt.apps.pictures.deploy_net import DeployNet, derive_deploy
from bpt.base.atomic import write_text
from bpt.base.errors import UsageError
from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.layout import layout
from bpt.graph.layer_spec import Shape
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.nn.net_file import sample_without_data

LOG = logging.getLogger("bpt")
_WIDTH = 110
_FEWEST_AXES = 2  # fewest axes of an input: samples, and the numbers of a sample
_PROBABILITIES = "prob"
"""Caffe's name of the Softmax in a deploy text."""
_TRAINING_FIELDS = ("include", "exclude", "phase", "loss_weight")
"""The fields of a layer that have no meaning in a deploy text."""


def for_use(plan: NetPlan) -> NetPlan:
    """Return the deploy net of the train text ``plan``: an Input layer instead of the data, no labels, no losses."""
    return _derive(plan, ())[0].plan


def deploy_text(model: str, level: int = 0, stages: Sequence[str] = (), shape: Shape = ()) -> str:
    """Return the deploy text of the train text in the file ``model``, with comments that say what was changed.

    Args:
        model: the file.
        level: the network's level.
        stages: the network's stages.
        shape: the shape of a sample. (): that of the data set; if the data set is missing, the shape follows from the
            text, and a warning says which shape that is.

    Raises:
        PrototxtError: the text is wrong; the error says where.
        UserError: the input or its shape cannot be determined.
    """
    derived, note = _derive(file_plan(model, pb.TEST, level, tuple(stages)), shape)
    param = pb.NetParameter()
    param.CopyFrom(derived.plan.source.param)
    param.ClearField("force_backward")
    for layer in param.layer:
        for field in _TRAINING_FIELDS:
            layer.ClearField(field)
    only = _name_probabilities(param, derived)
    lines = [*_comments(model, derived, only), *([note] if note else [])]
    comments = "\n".join(textwrap.fill(line, _WIDTH) for line in lines)
    return "".join(f"# {line}\n" for line in comments.splitlines()) + layout(param)


def _derive(plan: NetPlan, shape: Shape) -> tuple[DeployNet, str]:
    """Return the deploy net, and a note about the assumed shape of samples if the data set is missing."""
    note = ""
    if not shape:
        layers = filter_layers(layer_specs(plan.source.param, plan.source.origins), plan.state)
        absent = [(spec, sample) for spec in layers if (sample := sample_without_data(spec.param))]
        if absent:
            spec, shape = absent[0]
            note = (
                f'The data of layer "{spec.name}" are missing; the text suggests samples of '
                f"{' x '.join(map(str, shape))}. bpt deploy --shape corrects this."
            )
            LOG.warning("%s: %s", plan.source.path, note)
    return derive_deploy(plan, least_axes=_FEWEST_AXES, side_losses=False, shape=shape), note


def write_deploy(model: str, output: str, text: str) -> None:
    """Write the deploy ``text`` of the train text in the file ``model`` to the file ``output``.

    Raises:
        UsageError: ``output`` is ``model``.
        WriteError: the file could not be written.
    """
    if os.path.realpath(output) == os.path.realpath(model):
        raise UsageError(f'--output: "{output}" is the text itself; give another file')
    write_text(output, text)


def _name_probabilities(param: pb.NetParameter, derived: DeployNet) -> str:
    """Give the Softmax that replaces a loss Caffe's name, if it is free and there is one such Softmax.

    Returns:
        The Softmax's name; "" if there are several, or none.
    """
    names = {layer.name for layer in param.layer} | {top for layer in param.layer for top in layer.top}
    if len(derived.losses) != 1:
        return ""
    (loss,) = derived.losses
    if _PROBABILITIES in names:
        return loss.name
    (softmax,) = (layer for layer in param.layer if layer.name == loss.name and layer.type == "Softmax")
    softmax.name = softmax.top[0] = _PROBABILITIES
    return _PROBABILITIES


def _comments(model: str, derived: DeployNet, only: str) -> Iterator[str]:
    yield f"The deploy text of {model}, derived by bpt deploy."
    data, first = derived.data, derived.plan.source.param.layer[0]
    shape = " x ".join(map(str, first.input_param.shape[0].dim[1:]))
    if data.type != "Input":
        yield f'The input "{first.top[0]}" replaces the layer "{data.name}" ({data.type}): N x {shape}.'
    for loss in derived.losses:
        name = only or loss.name
        yield f'"{name}" gives the probabilities of the classes; it replaces the loss "{loss.name}" ({loss.type}).'
    if derived.left_out:
        yield f"Left out, because they need labels or are losses: {', '.join(derived.left_out)}."
    if derived.side_losses:
        yield f"Left out with the layers that only they need: the side losses {', '.join(derived.side_losses)}."
