"""Which message of settings belongs to which layer type."""

from __future__ import annotations

from functools import cache

from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import fields_of

# Layer types without a message of their own name, which read another's. The rest follows from the schema.
_SHARED = {
    "Deconvolution": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "Im2col": "convolution_param",
    "LSTM": "recurrent_param",
    "Normalize": "norm_param",
    "RNN": "recurrent_param",
    "ReLU6": "relu_param",
    "SigmoidCrossEntropyLoss": "loss_param",
    "SoftmaxWithLoss": "loss_param",
}


@cache
def settings_of(type_name: str) -> str | None:
    """The field of LayerParameter that holds the settings of a layer type; None if it has none.

    That is the one whose message is named after the type: InnerProduct → inner_product_param.
    """
    for field in fields_of(pb.LayerParameter()):
        message = field.message_type
        if message is not None and field.name.endswith("_param") and message.name == f"{type_name}Parameter":
            return field.name
    return _SHARED.get(type_name)
