"""The table of which file of ``bpt.nn.layers`` has which layer types.

A file is imported when a net first has one of its types. ``tests/nn/layers/test_type_table.py`` compares the table with
the types that the files register.
"""

from __future__ import annotations

# fmt: off
TYPES_OF = {
    "accuracy": ("Accuracy", "SegAccuracy"),
    "activation": (
        "AbsVal", "BNLL", "Clip", "ELU", "PReLU", "Power", "ReLU", "ReLU6", "Sigmoid", "Swish", "TanH",
        "Threshold",
    ),
    "annotated_data": ("AnnotatedData",),
    "attention": ("Attention",),
    "batch_norm": ("BatchNorm",),
    "bn": ("BN",),
    "class_losses": ("FocalLoss", "HingeLoss", "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss"),
    "concat": ("Concat", "Silence", "Slice", "Split", "Tile"),
    "convolution": ("Convolution", "ConvolutionDepthwise", "Deconvolution", "DepthwiseConvolution", "Im2col"),
    "correlation": ("Correlation",),
    "crop": ("Crop", "CropCenter"),
    "data": ("Data",),
    "detection_output": ("DetectionEvaluate", "DetectionOutput"),
    "distance_losses": ("EuclideanLoss", "L1Loss", "SmoothL1Loss", "SmoothL1LossOHEM"),
    "dropout": ("Dropout",),
    "dummy_data": ("DummyData",),
    "eltwise": ("Axpy", "Eltwise"),
    "exponential": ("Exp", "Log"),
    "filter": ("BatchReindex", "Filter"),
    "hdf5_data": ("HDF5Data",),
    "hdf5_output": ("HDF5Output",),
    "heat_maps": ("ImResize", "Nms"),
    "image_data": ("ImageData",),
    "infogain_loss": ("InfogainLoss",),
    "inner_product": ("Embed", "InnerProduct", "MarginInnerProduct", "MpiFc"),
    "input": ("Input",),
    "interp": ("Interp", "SpatialTransformer"),
    "labelled_images": ("DenseImageData", "ImageLabelmapData", "ImageSegData"),
    "lstm": ("LSTM", "LSTMUnit", "RNN"),
    "memory_data": ("MemoryData",),
    "metric_losses": ("CenterLoss", "ContrastiveLoss", "TripletLoss"),
    "multibox_loss": ("MultiBoxLoss",),
    "normalize": ("LRN", "MVN", "Normalize"),
    "parameter": ("Parameter",),
    "permute": ("Permute", "Reorg", "ShuffleChannel", "Transpose"),
    "pooling": ("Pooling", "SPP"),
    "prior_box": ("PriorBox",),
    "proposal": ("BoxAnnotatorOHEM", "Proposal"),
    "python": ("Python",),
    "reduction": ("ArgMax", "Reduction"),
    "region_loss": ("RegionLoss",),
    "reshape": ("Flatten", "Reshape"),
    "roi_align": ("ROIAlign",),
    "roi_pooling": ("PSROIPooling", "ROIPooling"),
    "scale": ("Bias", "Scale"),
    "softmax": ("Softmax",),
    "softmax_loss": ("SoftmaxWithLoss", "SoftmaxWithLossOHEM"),
    "upsample": ("Unpooling", "Upsample"),
    "video_data": ("VideoData",),
    "volume_data": ("VolumeData",),
    "window_data": ("WindowData",),
}
# fmt: on
"""The types that a file registers, by its name."""
