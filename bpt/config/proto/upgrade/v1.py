"""V1 layers (2014): ``layers`` with types in capitals, and the settings of parameters in four lists."""

from __future__ import annotations

from bpt.base.origin import FieldPath, Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import is_message, is_repeated
from bpt.config.proto.upgrade.written import Written

_Old = pb.V1LayerParameter

TYPES = {
    _Old.NONE: "",
    _Old.ABSVAL: "AbsVal",
    _Old.ACCURACY: "Accuracy",
    _Old.ARGMAX: "ArgMax",
    _Old.BNLL: "BNLL",
    _Old.CONCAT: "Concat",
    _Old.CONTRASTIVE_LOSS: "ContrastiveLoss",
    _Old.CONVOLUTION: "Convolution",
    _Old.DATA: "Data",
    _Old.DECONVOLUTION: "Deconvolution",
    _Old.DROPOUT: "Dropout",
    _Old.DUMMY_DATA: "DummyData",
    _Old.EUCLIDEAN_LOSS: "EuclideanLoss",
    _Old.ELTWISE: "Eltwise",
    _Old.EXP: "Exp",
    _Old.FLATTEN: "Flatten",
    _Old.HDF5_DATA: "HDF5Data",
    _Old.HDF5_OUTPUT: "HDF5Output",
    _Old.HINGE_LOSS: "HingeLoss",
    _Old.IM2COL: "Im2col",
    _Old.IMAGE_DATA: "ImageData",
    _Old.INFOGAIN_LOSS: "InfogainLoss",
    _Old.INNER_PRODUCT: "InnerProduct",
    _Old.LRN: "LRN",
    _Old.MEMORY_DATA: "MemoryData",
    _Old.MULTINOMIAL_LOGISTIC_LOSS: "MultinomialLogisticLoss",
    _Old.MVN: "MVN",
    _Old.POOLING: "Pooling",
    _Old.POWER: "Power",
    _Old.RELU: "ReLU",
    _Old.SIGMOID: "Sigmoid",
    _Old.SIGMOID_CROSS_ENTROPY_LOSS: "SigmoidCrossEntropyLoss",
    _Old.SILENCE: "Silence",
    _Old.SLICE: "Slice",
    _Old.SOFTMAX: "Softmax",
    _Old.SOFTMAX_LOSS: "SoftmaxWithLoss",
    _Old.SPLIT: "Split",
    _Old.TANH: "TanH",
    _Old.THRESHOLD: "Threshold",
    _Old.WINDOW_DATA: "WindowData",
    _Old.BN: "BN",
    _Old.UNPOOLING: "Unpooling",
}
"""Today's name of each type; NONE, the default, has none."""

# Lists with an entry for each parameter of the layer, and the fields of its ``param`` that replace them.
PARAM_FIELDS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}


def upgrade(old: Written[pb.V1LayerParameter]) -> Written[pb.LayerParameter]:
    """Return the layer in today's format; only its type and parameter settings change their names."""
    new = pb.LayerParameter()
    for field, value in old.message.ListFields():
        if field.name == "type":
            new.type = TYPES[value]
        elif field.name in PARAM_FIELDS:
            for index, element in enumerate(value):
                while len(new.param) <= index:
                    new.param.add()
                setattr(new.param[index], PARAM_FIELDS[field.name], element)
        elif is_repeated(field):
            getattr(new, field.name).extend(value)
        elif is_message(field):
            getattr(new, field.name).CopyFrom(value)
        else:
            setattr(new, field.name, value)
    return Written(new, _moved(old.origins), old.path)


def _moved(origins: dict[FieldPath, Origin]) -> dict[FieldPath, Origin]:
    moved: dict[FieldPath, Origin] = {}
    for key, origin in origins.items():
        if not key or key[0] not in PARAM_FIELDS:
            moved[key] = origin
        else:
            if len(key) > 1:  # an entry: ("blobs_lr", 1)
                moved[("param", key[1], PARAM_FIELDS[str(key[0])])] = origin
            moved.setdefault(("param", *key[1:]), origin)
    return moved
