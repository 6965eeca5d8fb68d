"""The names of other programs for the fields of solvers and layers."""

from __future__ import annotations

from google.protobuf.message import Message

from bpt.config.proto import bpt_pb2 as pb

_RATE = "base_lr"
_PASSES = "max_iter, which counts iterations: epochs × samples of the data set / batch_size"
_SEED = "random_seed"
_DATA = "batch_size of the data layer, in the network's text"

_OF_SOLVERS = {
    "learning_rate": _RATE, "lr": _RATE, "epochs": _PASSES, "num_epochs": _PASSES, "max_epoch": _PASSES,
    "max_epochs": _PASSES, "iterations": "max_iter", "max_steps": "max_iter", "steps": "max_iter", "seed": _SEED,
    "amp": "precision: AUTO (or BFLOAT16)", "mixed_precision": "precision: AUTO (or BFLOAT16)",
    "optimizer": 'type: "SGD" | "Adam" | …', "scheduler": 'lr_policy: "step" | "cosine" | …',
    "lr_scheduler": 'lr_policy: "step" | "cosine" | …', "milestones": "stepvalue", "batch_size": _DATA,
    "gradient_accumulation_steps": "iter_size", "accumulate_grad_batches": "iter_size",
    "max_grad_norm": "clip_gradients", "grad_clip": "clip_gradients", "l2": "weight_decay",
    "checkpoint": "snapshot and snapshot_prefix", "log_interval": "display", "device": "solver_mode and device_id",
    "patience": "early_stopping_param { patience: … }", "model": "net",
}  # fmt: skip
_OF_LAYERS = {
    "kernel_size": "convolution_param { kernel_size: … } or pooling_param { kernel_size: … }",
    "out_channels": "convolution_param { num_output: … }", "filters": "convolution_param { num_output: … }",
    "out_features": "inner_product_param { num_output: … }", "input": "bottom", "output": "top",
    "inputs": "bottom", "outputs": "top",
}  # fmt: skip


def field_of(message: Message, word: str) -> str:
    """Return the equivalent here of the field ``word`` of other programs; "" if unknown."""
    if isinstance(message, pb.SolverParameter):
        return _OF_SOLVERS.get(word.lower(), "")
    return _OF_LAYERS.get(word.lower(), "") if isinstance(message, pb.LayerParameter) else ""
