"""Which file of ``bpt.layers`` has which layer types: a file is imported when a net first has one of its types.

``tests/layers/test_type_table.py`` holds the table against what the files register.
"""

from __future__ import annotations

# fmt: off
TYPES_OF = {
    "accuracy": ("Accuracy",),
    "activation": (
        "AbsVal", "BNLL", "Clip", "ELU", "PReLU", "Power", "ReLU", "ReLU6", "Sigmoid", "Swish", "TanH", "Threshold",
    ),
    "argmax": ("ArgMax",),
    "attention": ("Attention",),
    "axpy": ("Axpy",),
    "batch_norm": ("BatchNorm",),
    "batch_reindex": ("BatchReindex",),
    "concat": ("Concat",),
    "contrastive_loss": ("ContrastiveLoss",),
    "convolution": ("Convolution", "Deconvolution", "DepthwiseConvolution"),
    "crop": ("Crop",),
    "data": ("Data",),
    "dropout": ("Dropout",),
    "dummy_data": ("DummyData",),
    "eltwise": ("Eltwise",),
    "embed": ("Embed",),
    "euclidean_loss": ("EuclideanLoss",),
    "exponential": ("Exp", "Log"),
    "filter": ("Filter",),
    "flatten": ("Flatten",),
    "hdf5_data": ("HDF5Data",),
    "hdf5_output": ("HDF5Output",),
    "im2col": ("Im2col",),
    "image_data": ("ImageData",),
    "infogain_loss": ("InfogainLoss",),
    "inner_product": ("InnerProduct",),
    "input": ("Input",),
    "interp": ("Interp",),
    "lrn": ("LRN",),
    "lstm": ("LSTM",),
    "lstm_unit": ("LSTMUnit",),
    "memory_data": ("MemoryData",),
    "mvn": ("MVN",),
    "normalize": ("Normalize",),
    "parameter": ("Parameter",),
    "permute": ("Permute",),
    "pooling": ("Pooling",),
    "python": ("Python",),
    "reduction": ("Reduction",),
    "reshape": ("Reshape",),
    "rnn": ("RNN",),
    "sample_losses": ("HingeLoss", "MultinomialLogisticLoss"),
    "scale": ("Bias", "Scale"),
    "shuffle_channel": ("ShuffleChannel",),
    "sigmoid_cross_entropy_loss": ("SigmoidCrossEntropyLoss",),
    "silence": ("Silence",),
    "slice": ("Slice",),
    "softmax": ("Softmax",),
    "softmax_loss": ("SoftmaxWithLoss",),
    "split": ("Split",),
    "spp": ("SPP",),
    "tile": ("Tile",),
    "upsample": ("Upsample",),
    "volume_data": ("VolumeData",),
    "window_data": ("WindowData",),
}
# fmt: on
"""Name of a file → the types that it registers."""
