# ruff: noqa: E501  a table
"""A net for each layer type, as ``bpt export`` gets it: inputs, one layer, its outputs."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.nn.layers.type_table import TYPES_OF
from tests.support.pycaffe_texts import inputs, layer

Shape = tuple[int, ...]

TYPES = sorted(kind for types in TYPES_OF.values() for kind in types)
MAP = (2, 4, 6, 6)
ROWS = (2, 5)
DRAWN = 'weight_filler { type: "gaussian" std: 0.3 } '


@dataclass(frozen=True)
class Sample:
    """A layer's settings and its bottoms' shapes.

    Attributes:
        settings: the layer's text behind its type.
        bottoms: the shapes of its bottoms, which are inputs of the net.
        tops: how many it makes.
        before: the layers that make further bottoms, ``b0``, ``b1`` and so on.
        made: how many bottoms ``before`` makes.
        in_place: whether the layer may write its first bottom.
        refused: what the refusal says, where this net is refused.
    """

    settings: str = ""
    bottoms: tuple[Shape, ...] = (MAP,)
    tops: int = 1
    before: str = ""
    made: int = 0
    in_place: bool = False
    refused: str = ""

    def text(self, kind: str, in_place: bool = False) -> str:
        """The text of the net; the layer is called "L"."""
        names = [f"x{place}" for place in range(len(self.bottoms))]
        tops = [f"y{place}" for place in range(self.tops)]
        if in_place:
            tops[0] = names[0]
        given = inputs(**dict(zip(names, self.bottoms, strict=True))) if names else inputs(x=ROWS)
        read = [*names, *(f"b{place}" for place in range(self.made))]
        return given + self.before + layer(kind, " ".join(read), " ".join(tops), self.settings, name="L")


def neuron(settings: str = "", bottom: Shape = MAP) -> Sample:
    """A layer that may work in place."""
    return Sample(settings, (bottom,), in_place=True)


def loss(settings: str = "", *, classes: int = 5, places: Shape = (), tops: int = 1) -> Sample:
    """Scores and labels."""
    return Sample(settings, ((2, classes, *places), (2, *places)), tops)


REGIONS = (4, 5)

# fmt: off
NETS: dict[str, list[Sample]] = {
    "AbsVal": [neuron()],
    "Accuracy": [
        loss(), loss("accuracy_param { top_k: 2 ignore_label: 0 }", places=(3,), tops=2),
        loss("accuracy_param { ignore_label: 255 }", places=(3, 3)),
        Sample("accuracy_param { axis: -1 }", ((2, 3, 5), (2, 3))),
    ],
    "ArgMax": [
        Sample(), Sample("argmax_param { top_k: 5 }"), Sample("argmax_param { top_k: 3 axis: 1 }"),
        Sample("argmax_param { top_k: 3 out_max_val: true }"),
        Sample("argmax_param { top_k: 2 axis: -1 out_max_val: true }"),
    ],
    "Attention": [Sample(bottoms=((2, 4, 3, 3),) * 3)],
    "Axpy": [Sample(bottoms=((2, 4), MAP, MAP))],
    "BNLL": [neuron()],
    "BN": [neuron("bn_param { bn_mode: LEARN }"), neuron("bn_param { frozen: true }")],
    "BatchNorm": [neuron("batch_norm_param { use_global_stats: false }")],
    "BatchReindex": [Sample(bottoms=(MAP, (3,)))],
    "Bias": [neuron('bias_param { filler { type: "gaussian" } }'), Sample(bottoms=(MAP, (2,)), settings="bias_param { axis: 0 }")],
    "BoxAnnotatorOHEM": [Sample("box_annotator_ohem_param { roi_per_img: 1 }", ((4, 5), (4,), (4,), (4, 4)), 2)],
    "CenterLoss": [Sample("center_loss_param { num_output: 3 }", (ROWS, (2,)))],
    "Clip": [neuron("clip_param { min: -0.5 max: 0.7 }")],
    "Concat": [Sample(bottoms=(MAP, MAP)), Sample(bottoms=(MAP,))],
    "ContrastiveLoss": [
        Sample(bottoms=(ROWS, ROWS, (2,))),
        Sample("contrastive_loss_param { legacy_version: true margin: 20 }", (ROWS, ROWS, (2, 1))),
    ],
    "Convolution": [Sample(f"convolution_param {{ num_output: 3 kernel_size: 3 {DRAWN} }}")],
    "ConvolutionDepthwise": [Sample(f"convolution_param {{ num_output: 4 kernel_size: 3 {DRAWN} }}")],
    "Correlation": [
        Sample("correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 }", (MAP, MAP)),
        Sample("correlation_param { kernel_size: 3 max_displacement: 1 correlation_type: SUBTRACT }", (MAP, MAP)),
    ],
    "CropCenter": [Sample("crop_center_param { crop_size: [0, 0, 1, 1] }", (MAP,))],
    "Crop": [Sample("crop_param { axis: 2 offset: 1 }", (MAP, (2, 4, 3, 3)))],
    "Deconvolution": [Sample(f"convolution_param {{ num_output: 3 kernel_size: 3 stride: 2 {DRAWN} }}")],
    "DepthwiseConvolution": [Sample(f"convolution_param {{ num_output: 4 kernel_size: 3 {DRAWN} }}")],
    "DetectionEvaluate": [Sample("detection_evaluate_param { num_classes: 3 background_label_id: 0 }", ((1, 1, 3, 7), (1, 1, 2, 8)))],
    "Dropout": [neuron()],
    "DummyData": [
        Sample('dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: "constant" value: 2 } }', ()),
        Sample('dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: "gaussian" } }', (), refused="other sources"),
    ],
    "ELU": [neuron("elu_param { alpha: 0.5 }")],
    "Eltwise": [
        Sample(f"eltwise_param {{ operation: {operation} }}", (MAP, MAP), in_place=True) for operation in ("SUM", "PROD", "MAX")
    ] + [Sample("eltwise_param { coeff: 2 coeff: -1 }", (MAP, MAP))],
    "Embed": [Sample(f"embed_param {{ num_output: 3 input_dim: 4 {DRAWN} }}", (ROWS,))],
    "EuclideanLoss": [Sample(bottoms=(ROWS, ROWS))],
    "Exp": [neuron("exp_param { base: 2 }")],
    "Filter": [Sample(bottoms=((4, 3), (4,)))],
    "Flatten": [Sample(), Sample("flatten_param { axis: 2 }")],
    "FocalLoss": [loss(), Sample(bottoms=(ROWS, ROWS)), loss("focal_loss_param { type: LINEAR } loss_param { ignore_label: 1 }")],
    "HingeLoss": [loss(), loss("hinge_loss_param { norm: L2 }")],
    "Im2col": [Sample("convolution_param { kernel_size: 3 stride: 2 pad: 1 }"), Sample("convolution_param { kernel_size: 2 dilation: 2 }")],
    "ImResize": [Sample("imresize_param { factor: 2 }"), Sample("imresize_param { factor: 1.5 scale_gap: 0.4 }")],
    "InfogainLoss": [Sample(bottoms=(ROWS, (2,), (5, 5))), Sample(bottoms=(ROWS, (2,), (1, 1, 5, 5)), tops=2)],
    "InnerProduct": [Sample(f"inner_product_param {{ num_output: 3 {DRAWN} }}")],
    "MpiFc": [Sample(f"inner_product_param {{ num_output: 3 {DRAWN} }}")],
    "Input": [Sample("input_param { shape { dim: 2 dim: 3 } shape { dim: 4 } }", (), 2)],
    "Interp": [Sample("interp_param { height: 9 width: 11 }"), Sample("interp_param { zoom_factor: 2 }"),
               Sample("interp_param { shrink_factor: 2 pad_beg: 0 pad_end: 0 }"), Sample(bottoms=(MAP, (2, 4, 9, 3)))],
    "L1Loss": [Sample(bottoms=(MAP, MAP)), Sample("l1_loss_param { l2_per_location: true }", (MAP,))],
    "LRN": [Sample("lrn_param { local_size: 3 alpha: 0.5 }"), Sample("lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }")],
    "LSTM": [Sample(f"recurrent_param {{ num_output: 3 {DRAWN} }}", ((3, 2, 4), (3, 2)))],
    "LSTMUnit": [Sample(bottoms=((1, 2, 3), (1, 2, 12), (1, 2)), tops=2)],
    "Log": [neuron("log_param { scale: 0.1 shift: 3 }")],
    "MVN": [Sample(), Sample("mvn_param { across_channels: true normalize_variance: false }")],
    "MarginInnerProduct": [
        Sample(f"margin_inner_product_param {{ num_output: 3 type: {kind} base: 5 {DRAWN} }}", (ROWS, (2,)), tops)
        for kind, tops in (("SINGLE", 1), ("QUADRUPLE", 2))
    ],
    "MultinomialLogisticLoss": [loss()],
    "Nms": [Sample("nms_param { num_parts: 3 max_peaks: 4 threshold: 0.1 }")],
    "Normalize": [Sample(), Sample("norm_param { across_spatial: false }")],
    "PReLU": [neuron()],
    "PSROIPooling": [Sample("psroi_pooling_param { output_dim: 1 group_size: 2 spatial_scale: 1 }", (MAP, REGIONS))],
    "Parameter": [Sample("parameter_param { shape { dim: 2 dim: 3 } }", ())],
    "Permute": [Sample("permute_param { order: [0, 2, 3, 1] }")],
    "Pooling": [
        *(Sample(f"pooling_param {{ pool: {method} kernel_size: 3 stride: 2 pad: 1 }}") for method in ("MAX", "AVE")),
        Sample("pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }"),
        Sample("pooling_param { pool: MAX kernel_size: 2 stride: 2 }", tops=2),
        Sample("pooling_param { pool: AVE global_pooling: true }"),
    ],
    "Power": [neuron("power_param { power: 2 scale: 0.5 shift: 1 }"), neuron("power_param { power: 0 }")],
    "PriorBox": [Sample("prior_box_param { min_size: 5 aspect_ratio: 2 }", (MAP, (2, 3, 24, 24)))],
    "Proposal": [
        Sample("proposal_param { feat_stride: 4 anchor_base_size: 4 anchor_scale: 1 anchor_ratio: 1 }",
               ((1, 2, 6, 6), (1, 4, 6, 6), (1, 3)), 2),
    ],
    "RNN": [Sample(f"recurrent_param {{ num_output: 3 {DRAWN} }}", ((3, 2, 4), (3, 2))),
            Sample(f"recurrent_param {{ num_output: 3 {DRAWN} expose_hidden: true }}", ((3, 2, 4), (3, 2), (1, 2, 3)), 2)],
    "ROIAlign": [
        Sample("roi_align_param { pooled_h: 2 pooled_w: 3 spatial_scale: 1 sampling_ratio: 2 }", (MAP, REGIONS)),
        Sample("roi_align_param { pooled_h: 2 pooled_w: 3 spatial_scale: 1 }", (MAP, REGIONS)),
        Sample("roi_align_param { pooled_h: 2 pooled_w: 3 spatial_scale: 1 pad_ratio: 0.25 }", (MAP, REGIONS), refused='"L"'),
    ],
    "ROIPooling": [Sample("roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 1 }", (MAP, REGIONS))],
    "ReLU": [neuron(), neuron("relu_param { negative_slope: 0.1 }")],
    "ReLU6": [neuron()],
    "Reduction": [Sample(f"reduction_param {{ operation: {way} axis: 1 }}") for way in ("SUM", "ASUM", "SUMSQ", "MEAN")]
    + [Sample()],
    "RegionLoss": [Sample("region_loss_param { num: 2 num_class: 2 biases: [0.7, 1.3, 1.9, 0.6] }", ((2, 14, 3, 3), (2, 15)))],
    "Reorg": [Sample("reorg_param { stride: 2 }"), Sample("reorg_param { stride: 2 reverse: true }")],
    "Reshape": [Sample("reshape_param { shape { dim: 0 dim: -1 } }")],
    "Scale": [neuron("scale_param { bias_term: true }"), Sample("scale_param { axis: 0 }", (MAP, (2,)))],
    "SegAccuracy": [loss(places=(3, 3))],
    "ShuffleChannel": [Sample("shuffle_channel_param { group: 2 }")],
    "Sigmoid": [neuron()],
    "SigmoidCrossEntropyLoss": [Sample(bottoms=(ROWS, ROWS)), Sample("loss_param { ignore_label: 0 }", (ROWS, ROWS))],
    "Silence": [Sample(tops=0, refused="no outputs")],
    "Slice": [Sample(tops=2)],
    "SmoothL1Loss": [Sample(bottoms=(ROWS,) * 2), Sample(bottoms=(ROWS,) * 4)],
    "SmoothL1LossOHEM": [Sample(bottoms=(ROWS,) * 2, tops=2)],
    "Softmax": [neuron()],
    "SoftmaxWithLoss": [
        loss(), loss("loss_param { ignore_label: 255 }", places=(3, 3)),
        loss("loss_param { ignore_label: 0 normalization: VALID }", places=(3, 3), tops=2),
        Sample("softmax_param { axis: 2 }", ((2, 3, 5), (2, 3))),
        Sample(bottoms=(ROWS, ROWS)),
    ],
    "SoftmaxWithLossOHEM": [loss(places=(3,), tops=3)],
    "SpatialTransformer": [Sample("st_param { output_H: 4 output_W: 5 }", (MAP, (2, 6)))],
    "Split": [Sample(tops=2)],
    "SPP": [Sample(f"spp_param {{ pyramid_height: 2 pool: {method} }}") for method in ("MAX", "AVE", "STOCHASTIC")],
    "Swish": [neuron()],
    "TanH": [neuron()],
    "Threshold": [neuron()],
    "Tile": [Sample("tile_param { axis: 1 tiles: 2 }")],
    "Transpose": [Sample("transpose_param { dim: [0, 2, 3, 1] }")],
    "TripletLoss": [Sample(bottoms=(ROWS,) * 3)],
    "Unpooling": [Sample(f"unpooling_param {{ unpool: {way} kernel_size: 2 stride: 2 }}") for way in ("MAX", "AVE", "TILE")],
    "Upsample": [Sample("upsample_param { scale: 2 }"),
                 Sample("upsample_param { scale: 2 }", bottoms=(MAP,))],
}
# fmt: on
