# Written by `python -m bpt.config.proto.compile`; do not edit.
# ruff: noqa
# mypy: disable-error-code="type-arg,no-untyped-def"
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAIN: _ClassVar[Phase]
    TEST: _ClassVar[Phase]

class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOUBLE: _ClassVar[Type]
    FLOAT: _ClassVar[Type]
    FLOAT16: _ClassVar[Type]
    INT: _ClassVar[Type]
    UINT: _ClassVar[Type]
    BOOL: _ClassVar[Type]
TRAIN: Phase
TEST: Phase
DOUBLE: Type
FLOAT: Type
FLOAT16: Type
INT: Type
UINT: Type
BOOL: Type

class NetParameter(_message.Message):
    __slots__ = ("name", "input", "input_shape", "input_dim", "force_backward", "state", "debug_info", "default_forward_type", "global_grad_scale", "global_grad_scale_adaptive", "default_backward_type", "default_forward_math", "default_backward_math", "default_conv_algos_override", "reduce_buckets", "default_cudnn_math_override", "eltwise_mem_sharing", "engine", "compile_net_state", "multinode", "bn_stats_batch_size", "layer", "layers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    FORCE_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FORWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_GRAD_SCALE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_GRAD_SCALE_ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BACKWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FORWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BACKWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_CONV_ALGOS_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    REDUCE_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_CUDNN_MATH_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_MEM_SHARING_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    COMPILE_NET_STATE_FIELD_NUMBER: _ClassVar[int]
    MULTINODE_FIELD_NUMBER: _ClassVar[int]
    BN_STATS_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    input: _containers.RepeatedScalarFieldContainer[str]
    input_shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    input_dim: _containers.RepeatedScalarFieldContainer[int]
    force_backward: bool
    state: NetState
    debug_info: bool
    default_forward_type: Type
    global_grad_scale: float
    global_grad_scale_adaptive: bool
    default_backward_type: Type
    default_forward_math: Type
    default_backward_math: Type
    default_conv_algos_override: str
    reduce_buckets: int
    default_cudnn_math_override: int
    eltwise_mem_sharing: bool
    engine: str
    compile_net_state: CompileNetState
    multinode: MultinodeParameter
    bn_stats_batch_size: int
    layer: _containers.RepeatedCompositeFieldContainer[LayerParameter]
    layers: _containers.RepeatedCompositeFieldContainer[V1LayerParameter]
    def __init__(self, name: _Optional[str] = ..., input: _Optional[_Iterable[str]] = ..., input_shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., input_dim: _Optional[_Iterable[int]] = ..., force_backward: _Optional[bool] = ..., state: _Optional[_Union[NetState, _Mapping]] = ..., debug_info: _Optional[bool] = ..., default_forward_type: _Optional[_Union[Type, str]] = ..., global_grad_scale: _Optional[float] = ..., global_grad_scale_adaptive: _Optional[bool] = ..., default_backward_type: _Optional[_Union[Type, str]] = ..., default_forward_math: _Optional[_Union[Type, str]] = ..., default_backward_math: _Optional[_Union[Type, str]] = ..., default_conv_algos_override: _Optional[str] = ..., reduce_buckets: _Optional[int] = ..., default_cudnn_math_override: _Optional[int] = ..., eltwise_mem_sharing: _Optional[bool] = ..., engine: _Optional[str] = ..., compile_net_state: _Optional[_Union[CompileNetState, _Mapping]] = ..., multinode: _Optional[_Union[MultinodeParameter, _Mapping]] = ..., bn_stats_batch_size: _Optional[int] = ..., layer: _Optional[_Iterable[_Union[LayerParameter, _Mapping]]] = ..., layers: _Optional[_Iterable[_Union[V1LayerParameter, _Mapping]]] = ...) -> None: ...

class NetState(_message.Message):
    __slots__ = ("phase", "level", "stage")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    level: int
    stage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., level: _Optional[int] = ..., stage: _Optional[_Iterable[str]] = ...) -> None: ...

class NetStateRule(_message.Message):
    __slots__ = ("phase", "min_level", "max_level", "stage", "not_stage")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    NOT_STAGE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    min_level: int
    max_level: int
    stage: _containers.RepeatedScalarFieldContainer[str]
    not_stage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ..., stage: _Optional[_Iterable[str]] = ..., not_stage: _Optional[_Iterable[str]] = ...) -> None: ...

class LayerParameter(_message.Message):
    __slots__ = ("name", "type", "bottom", "top", "phase", "loss_weight", "param", "blobs", "propagate_down", "include", "exclude", "transform_param", "loss_param", "accuracy_param", "argmax_param", "batch_norm_param", "bias_param", "clip_param", "concat_param", "contrastive_loss_param", "convolution_param", "crop_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param", "elu_param", "embed_param", "exp_param", "flatten_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param", "inner_product_param", "input_param", "log_param", "lrn_param", "memory_data_param", "mvn_param", "parameter_param", "pooling_param", "power_param", "prelu_param", "python_param", "recurrent_param", "reduction_param", "relu_param", "reshape_param", "scale_param", "sigmoid_param", "softmax_param", "spp_param", "slice_param", "swish_param", "tanh_param", "threshold_param", "tile_param", "window_data_param", "parallel_param", "attention_param", "volume_data_param", "permute_param", "norm_param", "shuffle_channel_param", "crop_center_param", "interp_param", "upsample_param", "forward_type", "backward_type", "forward_math", "backward_math", "debug", "cudnn_math_override", "engine", "multinode", "mn_activation_param", "mn_grad_compress_param", "annotated_data_param", "multibox_loss_param", "prior_box_param", "detection_output_param", "detection_evaluate_param", "video_data_param", "roi_pooling_param", "smooth_l1_loss_param", "psroi_pooling_param", "proposal_param", "roi_align_param", "box_annotator_ohem_param", "bn_param", "unpooling_param", "dense_image_data_param", "seg_accuracy_param", "triplet_loss_param", "center_loss_param", "margin_inner_product_param", "focal_loss_param", "l1_loss_param", "correlation_param", "st_param", "region_loss_param", "reorg_param", "transpose_param", "imresize_param", "nms_param", "spatial_dropout_param")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    PROPAGATE_DOWN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    BIAS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CLIP_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONCAT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    CROP_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DUMMY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMBED_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    FLATTEN_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HINGE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFOGAIN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    INPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOG_PARAM_FIELD_NUMBER: _ClassVar[int]
    LRN_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MVN_PARAM_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    POWER_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    PYTHON_PARAM_FIELD_NUMBER: _ClassVar[int]
    RECURRENT_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPP_PARAM_FIELD_NUMBER: _ClassVar[int]
    SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SWISH_PARAM_FIELD_NUMBER: _ClassVar[int]
    TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PARAM_FIELD_NUMBER: _ClassVar[int]
    TILE_PARAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    VOLUME_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    PERMUTE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_CHANNEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    CROP_CENTER_PARAM_FIELD_NUMBER: _ClassVar[int]
    INTERP_PARAM_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    FORWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    FORWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    DEBUG_FIELD_NUMBER: _ClassVar[int]
    CUDNN_MATH_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MULTINODE_FIELD_NUMBER: _ClassVar[int]
    MN_ACTIVATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    MN_GRAD_COMPRESS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ANNOTATED_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTIBOX_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRIOR_BOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_EVALUATE_PARAM_FIELD_NUMBER: _ClassVar[int]
    VIDEO_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    SMOOTH_L1_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    PSROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_ALIGN_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_ANNOTATOR_OHEM_PARAM_FIELD_NUMBER: _ClassVar[int]
    BN_PARAM_FIELD_NUMBER: _ClassVar[int]
    UNPOOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENSE_IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    SEG_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRIPLET_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CENTER_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    MARGIN_INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    FOCAL_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    L1_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    ST_PARAM_FIELD_NUMBER: _ClassVar[int]
    REGION_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    REORG_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMRESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    bottom: _containers.RepeatedScalarFieldContainer[str]
    top: _containers.RepeatedScalarFieldContainer[str]
    phase: Phase
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    param: _containers.RepeatedCompositeFieldContainer[ParamSpec]
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    propagate_down: _containers.RepeatedScalarFieldContainer[bool]
    include: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    exclude: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    transform_param: TransformationParameter
    loss_param: LossParameter
    accuracy_param: AccuracyParameter
    argmax_param: ArgMaxParameter
    batch_norm_param: BatchNormParameter
    bias_param: BiasParameter
    clip_param: ClipParameter
    concat_param: ConcatParameter
    contrastive_loss_param: ContrastiveLossParameter
    convolution_param: ConvolutionParameter
    crop_param: CropParameter
    data_param: DataParameter
    dropout_param: DropoutParameter
    dummy_data_param: DummyDataParameter
    eltwise_param: EltwiseParameter
    elu_param: ELUParameter
    embed_param: EmbedParameter
    exp_param: ExpParameter
    flatten_param: FlattenParameter
    hdf5_data_param: HDF5DataParameter
    hdf5_output_param: HDF5OutputParameter
    hinge_loss_param: HingeLossParameter
    image_data_param: ImageDataParameter
    infogain_loss_param: InfogainLossParameter
    inner_product_param: InnerProductParameter
    input_param: InputParameter
    log_param: LogParameter
    lrn_param: LRNParameter
    memory_data_param: MemoryDataParameter
    mvn_param: MVNParameter
    parameter_param: ParameterParameter
    pooling_param: PoolingParameter
    power_param: PowerParameter
    prelu_param: PReLUParameter
    python_param: PythonParameter
    recurrent_param: RecurrentParameter
    reduction_param: ReductionParameter
    relu_param: ReLUParameter
    reshape_param: ReshapeParameter
    scale_param: ScaleParameter
    sigmoid_param: SigmoidParameter
    softmax_param: SoftmaxParameter
    spp_param: SPPParameter
    slice_param: SliceParameter
    swish_param: SwishParameter
    tanh_param: TanHParameter
    threshold_param: ThresholdParameter
    tile_param: TileParameter
    window_data_param: WindowDataParameter
    parallel_param: LayerParallelParameter
    attention_param: AttentionParameter
    volume_data_param: VolumeDataParameter
    permute_param: PermuteParameter
    norm_param: NormalizeBBoxParameter
    shuffle_channel_param: ShuffleChannelParameter
    crop_center_param: CropCenterParameter
    interp_param: InterpParameter
    upsample_param: UpsampleParameter
    forward_type: Type
    backward_type: Type
    forward_math: Type
    backward_math: Type
    debug: bool
    cudnn_math_override: int
    engine: str
    multinode: MultinodeLayerParameter
    mn_activation_param: MnActivationParameter
    mn_grad_compress_param: MnParamGradCompressParameter
    annotated_data_param: AnnotatedDataParameter
    multibox_loss_param: MultiBoxLossParameter
    prior_box_param: PriorBoxParameter
    detection_output_param: DetectionOutputParameter
    detection_evaluate_param: DetectionEvaluateParameter
    video_data_param: VideoDataParameter
    roi_pooling_param: ROIPoolingParameter
    smooth_l1_loss_param: SmoothL1LossParameter
    psroi_pooling_param: PSROIPoolingParameter
    proposal_param: ProposalParameter
    roi_align_param: ROIAlignParameter
    box_annotator_ohem_param: BoxAnnotatorOHEMParameter
    bn_param: BNParameter
    unpooling_param: UnpoolingParameter
    dense_image_data_param: DenseImageDataParameter
    seg_accuracy_param: SegAccuracyParameter
    triplet_loss_param: TripletLossParameter
    center_loss_param: CenterLossParameter
    margin_inner_product_param: MarginInnerProductParameter
    focal_loss_param: FocalLossParameter
    l1_loss_param: L1LossParameter
    correlation_param: CorrelationParameter
    st_param: SpatialTransformerParameter
    region_loss_param: RegionLossParameter
    reorg_param: ReorgParameter
    transpose_param: TransposeParameter
    imresize_param: ImResizeParameter
    nms_param: NmsParameter
    spatial_dropout_param: SpatialDropoutParameter
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., bottom: _Optional[_Iterable[str]] = ..., top: _Optional[_Iterable[str]] = ..., phase: _Optional[_Union[Phase, str]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., param: _Optional[_Iterable[_Union[ParamSpec, _Mapping]]] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., propagate_down: _Optional[_Iterable[bool]] = ..., include: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., loss_param: _Optional[_Union[LossParameter, _Mapping]] = ..., accuracy_param: _Optional[_Union[AccuracyParameter, _Mapping]] = ..., argmax_param: _Optional[_Union[ArgMaxParameter, _Mapping]] = ..., batch_norm_param: _Optional[_Union[BatchNormParameter, _Mapping]] = ..., bias_param: _Optional[_Union[BiasParameter, _Mapping]] = ..., clip_param: _Optional[_Union[ClipParameter, _Mapping]] = ..., concat_param: _Optional[_Union[ConcatParameter, _Mapping]] = ..., contrastive_loss_param: _Optional[_Union[ContrastiveLossParameter, _Mapping]] = ..., convolution_param: _Optional[_Union[ConvolutionParameter, _Mapping]] = ..., crop_param: _Optional[_Union[CropParameter, _Mapping]] = ..., data_param: _Optional[_Union[DataParameter, _Mapping]] = ..., dropout_param: _Optional[_Union[DropoutParameter, _Mapping]] = ..., dummy_data_param: _Optional[_Union[DummyDataParameter, _Mapping]] = ..., eltwise_param: _Optional[_Union[EltwiseParameter, _Mapping]] = ..., elu_param: _Optional[_Union[ELUParameter, _Mapping]] = ..., embed_param: _Optional[_Union[EmbedParameter, _Mapping]] = ..., exp_param: _Optional[_Union[ExpParameter, _Mapping]] = ..., flatten_param: _Optional[_Union[FlattenParameter, _Mapping]] = ..., hdf5_data_param: _Optional[_Union[HDF5DataParameter, _Mapping]] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ..., hinge_loss_param: _Optional[_Union[HingeLossParameter, _Mapping]] = ..., image_data_param: _Optional[_Union[ImageDataParameter, _Mapping]] = ..., infogain_loss_param: _Optional[_Union[InfogainLossParameter, _Mapping]] = ..., inner_product_param: _Optional[_Union[InnerProductParameter, _Mapping]] = ..., input_param: _Optional[_Union[InputParameter, _Mapping]] = ..., log_param: _Optional[_Union[LogParameter, _Mapping]] = ..., lrn_param: _Optional[_Union[LRNParameter, _Mapping]] = ..., memory_data_param: _Optional[_Union[MemoryDataParameter, _Mapping]] = ..., mvn_param: _Optional[_Union[MVNParameter, _Mapping]] = ..., parameter_param: _Optional[_Union[ParameterParameter, _Mapping]] = ..., pooling_param: _Optional[_Union[PoolingParameter, _Mapping]] = ..., power_param: _Optional[_Union[PowerParameter, _Mapping]] = ..., prelu_param: _Optional[_Union[PReLUParameter, _Mapping]] = ..., python_param: _Optional[_Union[PythonParameter, _Mapping]] = ..., recurrent_param: _Optional[_Union[RecurrentParameter, _Mapping]] = ..., reduction_param: _Optional[_Union[ReductionParameter, _Mapping]] = ..., relu_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., reshape_param: _Optional[_Union[ReshapeParameter, _Mapping]] = ..., scale_param: _Optional[_Union[ScaleParameter, _Mapping]] = ..., sigmoid_param: _Optional[_Union[SigmoidParameter, _Mapping]] = ..., softmax_param: _Optional[_Union[SoftmaxParameter, _Mapping]] = ..., spp_param: _Optional[_Union[SPPParameter, _Mapping]] = ..., slice_param: _Optional[_Union[SliceParameter, _Mapping]] = ..., swish_param: _Optional[_Union[SwishParameter, _Mapping]] = ..., tanh_param: _Optional[_Union[TanHParameter, _Mapping]] = ..., threshold_param: _Optional[_Union[ThresholdParameter, _Mapping]] = ..., tile_param: _Optional[_Union[TileParameter, _Mapping]] = ..., window_data_param: _Optional[_Union[WindowDataParameter, _Mapping]] = ..., parallel_param: _Optional[_Union[LayerParallelParameter, _Mapping]] = ..., attention_param: _Optional[_Union[AttentionParameter, _Mapping]] = ..., volume_data_param: _Optional[_Union[VolumeDataParameter, _Mapping]] = ..., permute_param: _Optional[_Union[PermuteParameter, _Mapping]] = ..., norm_param: _Optional[_Union[NormalizeBBoxParameter, _Mapping]] = ..., shuffle_channel_param: _Optional[_Union[ShuffleChannelParameter, _Mapping]] = ..., crop_center_param: _Optional[_Union[CropCenterParameter, _Mapping]] = ..., interp_param: _Optional[_Union[InterpParameter, _Mapping]] = ..., upsample_param: _Optional[_Union[UpsampleParameter, _Mapping]] = ..., forward_type: _Optional[_Union[Type, str]] = ..., backward_type: _Optional[_Union[Type, str]] = ..., forward_math: _Optional[_Union[Type, str]] = ..., backward_math: _Optional[_Union[Type, str]] = ..., debug: _Optional[bool] = ..., cudnn_math_override: _Optional[int] = ..., engine: _Optional[str] = ..., multinode: _Optional[_Union[MultinodeLayerParameter, _Mapping]] = ..., mn_activation_param: _Optional[_Union[MnActivationParameter, _Mapping]] = ..., mn_grad_compress_param: _Optional[_Union[MnParamGradCompressParameter, _Mapping]] = ..., annotated_data_param: _Optional[_Union[AnnotatedDataParameter, _Mapping]] = ..., multibox_loss_param: _Optional[_Union[MultiBoxLossParameter, _Mapping]] = ..., prior_box_param: _Optional[_Union[PriorBoxParameter, _Mapping]] = ..., detection_output_param: _Optional[_Union[DetectionOutputParameter, _Mapping]] = ..., detection_evaluate_param: _Optional[_Union[DetectionEvaluateParameter, _Mapping]] = ..., video_data_param: _Optional[_Union[VideoDataParameter, _Mapping]] = ..., roi_pooling_param: _Optional[_Union[ROIPoolingParameter, _Mapping]] = ..., smooth_l1_loss_param: _Optional[_Union[SmoothL1LossParameter, _Mapping]] = ..., psroi_pooling_param: _Optional[_Union[PSROIPoolingParameter, _Mapping]] = ..., proposal_param: _Optional[_Union[ProposalParameter, _Mapping]] = ..., roi_align_param: _Optional[_Union[ROIAlignParameter, _Mapping]] = ..., box_annotator_ohem_param: _Optional[_Union[BoxAnnotatorOHEMParameter, _Mapping]] = ..., bn_param: _Optional[_Union[BNParameter, _Mapping]] = ..., unpooling_param: _Optional[_Union[UnpoolingParameter, _Mapping]] = ..., dense_image_data_param: _Optional[_Union[DenseImageDataParameter, _Mapping]] = ..., seg_accuracy_param: _Optional[_Union[SegAccuracyParameter, _Mapping]] = ..., triplet_loss_param: _Optional[_Union[TripletLossParameter, _Mapping]] = ..., center_loss_param: _Optional[_Union[CenterLossParameter, _Mapping]] = ..., margin_inner_product_param: _Optional[_Union[MarginInnerProductParameter, _Mapping]] = ..., focal_loss_param: _Optional[_Union[FocalLossParameter, _Mapping]] = ..., l1_loss_param: _Optional[_Union[L1LossParameter, _Mapping]] = ..., correlation_param: _Optional[_Union[CorrelationParameter, _Mapping]] = ..., st_param: _Optional[_Union[SpatialTransformerParameter, _Mapping]] = ..., region_loss_param: _Optional[_Union[RegionLossParameter, _Mapping]] = ..., reorg_param: _Optional[_Union[ReorgParameter, _Mapping]] = ..., transpose_param: _Optional[_Union[TransposeParameter, _Mapping]] = ..., imresize_param: _Optional[_Union[ImResizeParameter, _Mapping]] = ..., nms_param: _Optional[_Union[NmsParameter, _Mapping]] = ..., spatial_dropout_param: _Optional[_Union[SpatialDropoutParameter, _Mapping]] = ...) -> None: ...

class CompileNetState(_message.Message):
    __slots__ = ("is_init", "bn_scale_remove", "bn_scale_merge", "kept_bn_layers")
    IS_INIT_FIELD_NUMBER: _ClassVar[int]
    BN_SCALE_REMOVE_FIELD_NUMBER: _ClassVar[int]
    BN_SCALE_MERGE_FIELD_NUMBER: _ClassVar[int]
    KEPT_BN_LAYERS_FIELD_NUMBER: _ClassVar[int]
    is_init: bool
    bn_scale_remove: bool
    bn_scale_merge: bool
    kept_bn_layers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, is_init: _Optional[bool] = ..., bn_scale_remove: _Optional[bool] = ..., bn_scale_merge: _Optional[bool] = ..., kept_bn_layers: _Optional[_Iterable[str]] = ...) -> None: ...

class MultinodeParameter(_message.Message):
    __slots__ = ("model_parallel", "compress_layer_type_list")
    MODEL_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    COMPRESS_LAYER_TYPE_LIST_FIELD_NUMBER: _ClassVar[int]
    model_parallel: _containers.RepeatedCompositeFieldContainer[MnModelParallelParameter]
    compress_layer_type_list: MnParamGradCompressLayerTypeList
    def __init__(self, model_parallel: _Optional[_Iterable[_Union[MnModelParallelParameter, _Mapping]]] = ..., compress_layer_type_list: _Optional[_Union[MnParamGradCompressLayerTypeList, _Mapping]] = ...) -> None: ...

class MnModelParallelParameter(_message.Message):
    __slots__ = ("layer_from", "layer_to", "num_nodes", "model_parts")
    LAYER_FROM_FIELD_NUMBER: _ClassVar[int]
    LAYER_TO_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_FIELD_NUMBER: _ClassVar[int]
    layer_from: str
    layer_to: str
    num_nodes: int
    model_parts: int
    def __init__(self, layer_from: _Optional[str] = ..., layer_to: _Optional[str] = ..., num_nodes: _Optional[int] = ..., model_parts: _Optional[int] = ...) -> None: ...

class MnParamGradCompressLayerTypeList(_message.Message):
    __slots__ = ("layer_type",)
    LAYER_TYPE_FIELD_NUMBER: _ClassVar[int]
    layer_type: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, layer_type: _Optional[_Iterable[str]] = ...) -> None: ...

class MultinodeLayerParameter(_message.Message):
    __slots__ = ("num_nodes", "model_parts")
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_FIELD_NUMBER: _ClassVar[int]
    num_nodes: int
    model_parts: int
    def __init__(self, num_nodes: _Optional[int] = ..., model_parts: _Optional[int] = ...) -> None: ...

class MnActivationParameter(_message.Message):
    __slots__ = ("num_nodes_in", "num_nodes_out", "model_parts_in", "model_parts_out", "need_reduce")
    NUM_NODES_IN_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_OUT_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_IN_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_OUT_FIELD_NUMBER: _ClassVar[int]
    NEED_REDUCE_FIELD_NUMBER: _ClassVar[int]
    num_nodes_in: int
    num_nodes_out: int
    model_parts_in: int
    model_parts_out: int
    need_reduce: bool
    def __init__(self, num_nodes_in: _Optional[int] = ..., num_nodes_out: _Optional[int] = ..., model_parts_in: _Optional[int] = ..., model_parts_out: _Optional[int] = ..., need_reduce: _Optional[bool] = ...) -> None: ...

class MnParamGradCompressParameter(_message.Message):
    __slots__ = ("param_grad_compress_enable",)
    PARAM_GRAD_COMPRESS_ENABLE_FIELD_NUMBER: _ClassVar[int]
    param_grad_compress_enable: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, param_grad_compress_enable: _Optional[_Iterable[bool]] = ...) -> None: ...

class ParamSpec(_message.Message):
    __slots__ = ("name", "share_mode", "lr_mult", "decay_mult")
    class DimCheckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRICT: _ClassVar[ParamSpec.DimCheckMode]
        PERMISSIVE: _ClassVar[ParamSpec.DimCheckMode]
    STRICT: ParamSpec.DimCheckMode
    PERMISSIVE: ParamSpec.DimCheckMode
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARE_MODE_FIELD_NUMBER: _ClassVar[int]
    LR_MULT_FIELD_NUMBER: _ClassVar[int]
    DECAY_MULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    share_mode: ParamSpec.DimCheckMode
    lr_mult: float
    decay_mult: float
    def __init__(self, name: _Optional[str] = ..., share_mode: _Optional[_Union[ParamSpec.DimCheckMode, str]] = ..., lr_mult: _Optional[float] = ..., decay_mult: _Optional[float] = ...) -> None: ...

class FillerParameter(_message.Message):
    __slots__ = ("type", "value", "min", "max", "mean", "std", "sparse", "variance_norm", "scale")
    class VarianceNorm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAN_IN: _ClassVar[FillerParameter.VarianceNorm]
        FAN_OUT: _ClassVar[FillerParameter.VarianceNorm]
        AVERAGE: _ClassVar[FillerParameter.VarianceNorm]
    FAN_IN: FillerParameter.VarianceNorm
    FAN_OUT: FillerParameter.VarianceNorm
    AVERAGE: FillerParameter.VarianceNorm
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_NORM_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    type: str
    value: float
    min: float
    max: float
    mean: float
    std: float
    sparse: int
    variance_norm: FillerParameter.VarianceNorm
    scale: float
    def __init__(self, type: _Optional[str] = ..., value: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., mean: _Optional[float] = ..., std: _Optional[float] = ..., sparse: _Optional[int] = ..., variance_norm: _Optional[_Union[FillerParameter.VarianceNorm, str]] = ..., scale: _Optional[float] = ...) -> None: ...

class SolverParameter(_message.Message):
    __slots__ = ("net", "net_param", "train_net", "test_net", "train_net_param", "test_net_param", "train_state", "test_state", "test_iter", "test_interval", "test_compute_loss", "test_initialization", "base_lr", "display", "average_loss", "max_iter", "iter_size", "lr_policy", "gamma", "power", "momentum", "weight_decay", "regularization_type", "stepsize", "stepvalue", "clip_gradients", "snapshot", "snapshot_prefix", "snapshot_diff", "snapshot_format", "solver_mode", "device_id", "random_seed", "type", "delta", "momentum2", "rms_decay", "debug_info", "snapshot_after_train", "solver_type", "layer_wise_reduce", "weights", "rampup_interval", "rampup_lr", "min_lr", "momentum_policy", "max_momentum", "momentum_power", "larc", "larc_policy", "larc_eta", "weight_decay_policy", "weight_decay_power", "larc_turbo", "max_weight_decay", "plateau_winsize", "warmup_iter", "warmup_start_lr", "local_lr_auto", "local_gw_ratio", "stagelr", "stageiter", "solver_data_type", "store_blobs_in_old_format", "test_and_snapshot_last_epochs", "eval_type", "ap_version", "show_per_class_result", "disabled_update", "test_offset", "parallel_param", "engine", "precision", "on_nan", "cosine_param", "onecycle_param", "average_param", "early_stopping_param", "snapshot_best", "max_snapshots")
    class SnapshotFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HDF5: _ClassVar[SolverParameter.SnapshotFormat]
        BINARYPROTO: _ClassVar[SolverParameter.SnapshotFormat]
    HDF5: SolverParameter.SnapshotFormat
    BINARYPROTO: SolverParameter.SnapshotFormat
    class SolverMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CPU: _ClassVar[SolverParameter.SolverMode]
        GPU: _ClassVar[SolverParameter.SolverMode]
    CPU: SolverParameter.SolverMode
    GPU: SolverParameter.SolverMode
    class SolverType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SGD: _ClassVar[SolverParameter.SolverType]
        NESTEROV: _ClassVar[SolverParameter.SolverType]
        ADAGRAD: _ClassVar[SolverParameter.SolverType]
        RMSPROP: _ClassVar[SolverParameter.SolverType]
        ADADELTA: _ClassVar[SolverParameter.SolverType]
        ADAM: _ClassVar[SolverParameter.SolverType]
    SGD: SolverParameter.SolverType
    NESTEROV: SolverParameter.SolverType
    ADAGRAD: SolverParameter.SolverType
    RMSPROP: SolverParameter.SolverType
    ADADELTA: SolverParameter.SolverType
    ADAM: SolverParameter.SolverType
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AUTO: _ClassVar[SolverParameter.Engine]
        CONTIGUOUS: _ClassVar[SolverParameter.Engine]
        CHANNELS_LAST: _ClassVar[SolverParameter.Engine]
    AUTO: SolverParameter.Engine
    CONTIGUOUS: SolverParameter.Engine
    CHANNELS_LAST: SolverParameter.Engine
    class OnNan(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STOP: _ClassVar[SolverParameter.OnNan]
        GO_ON: _ClassVar[SolverParameter.OnNan]
    STOP: SolverParameter.OnNan
    GO_ON: SolverParameter.OnNan
    NET_FIELD_NUMBER: _ClassVar[int]
    NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRAIN_NET_FIELD_NUMBER: _ClassVar[int]
    TEST_NET_FIELD_NUMBER: _ClassVar[int]
    TRAIN_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TEST_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRAIN_STATE_FIELD_NUMBER: _ClassVar[int]
    TEST_STATE_FIELD_NUMBER: _ClassVar[int]
    TEST_ITER_FIELD_NUMBER: _ClassVar[int]
    TEST_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    TEST_COMPUTE_LOSS_FIELD_NUMBER: _ClassVar[int]
    TEST_INITIALIZATION_FIELD_NUMBER: _ClassVar[int]
    BASE_LR_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_LOSS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITER_FIELD_NUMBER: _ClassVar[int]
    ITER_SIZE_FIELD_NUMBER: _ClassVar[int]
    LR_POLICY_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    REGULARIZATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    STEPSIZE_FIELD_NUMBER: _ClassVar[int]
    STEPVALUE_FIELD_NUMBER: _ClassVar[int]
    CLIP_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_DIFF_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SOLVER_MODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM2_FIELD_NUMBER: _ClassVar[int]
    RMS_DECAY_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_AFTER_TRAIN_FIELD_NUMBER: _ClassVar[int]
    SOLVER_TYPE_FIELD_NUMBER: _ClassVar[int]
    LAYER_WISE_REDUCE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    RAMPUP_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    RAMPUP_LR_FIELD_NUMBER: _ClassVar[int]
    MIN_LR_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_POWER_FIELD_NUMBER: _ClassVar[int]
    LARC_FIELD_NUMBER: _ClassVar[int]
    LARC_POLICY_FIELD_NUMBER: _ClassVar[int]
    LARC_ETA_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_POLICY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_POWER_FIELD_NUMBER: _ClassVar[int]
    LARC_TURBO_FIELD_NUMBER: _ClassVar[int]
    MAX_WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    PLATEAU_WINSIZE_FIELD_NUMBER: _ClassVar[int]
    WARMUP_ITER_FIELD_NUMBER: _ClassVar[int]
    WARMUP_START_LR_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LR_AUTO_FIELD_NUMBER: _ClassVar[int]
    LOCAL_GW_RATIO_FIELD_NUMBER: _ClassVar[int]
    STAGELR_FIELD_NUMBER: _ClassVar[int]
    STAGEITER_FIELD_NUMBER: _ClassVar[int]
    SOLVER_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    STORE_BLOBS_IN_OLD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    TEST_AND_SNAPSHOT_LAST_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    EVAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    AP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHOW_PER_CLASS_RESULT_FIELD_NUMBER: _ClassVar[int]
    DISABLED_UPDATE_FIELD_NUMBER: _ClassVar[int]
    TEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    ON_NAN_FIELD_NUMBER: _ClassVar[int]
    COSINE_PARAM_FIELD_NUMBER: _ClassVar[int]
    ONECYCLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOPPING_PARAM_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BEST_FIELD_NUMBER: _ClassVar[int]
    MAX_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    net: str
    net_param: NetParameter
    train_net: str
    test_net: _containers.RepeatedScalarFieldContainer[str]
    train_net_param: NetParameter
    test_net_param: _containers.RepeatedCompositeFieldContainer[NetParameter]
    train_state: NetState
    test_state: _containers.RepeatedCompositeFieldContainer[NetState]
    test_iter: _containers.RepeatedScalarFieldContainer[int]
    test_interval: int
    test_compute_loss: bool
    test_initialization: bool
    base_lr: float
    display: int
    average_loss: int
    max_iter: int
    iter_size: int
    lr_policy: str
    gamma: float
    power: float
    momentum: float
    weight_decay: float
    regularization_type: str
    stepsize: int
    stepvalue: _containers.RepeatedScalarFieldContainer[int]
    clip_gradients: float
    snapshot: int
    snapshot_prefix: str
    snapshot_diff: bool
    snapshot_format: SolverParameter.SnapshotFormat
    solver_mode: SolverParameter.SolverMode
    device_id: int
    random_seed: int
    type: str
    delta: float
    momentum2: float
    rms_decay: float
    debug_info: bool
    snapshot_after_train: bool
    solver_type: SolverParameter.SolverType
    layer_wise_reduce: bool
    weights: _containers.RepeatedScalarFieldContainer[str]
    rampup_interval: int
    rampup_lr: float
    min_lr: float
    momentum_policy: str
    max_momentum: float
    momentum_power: float
    larc: bool
    larc_policy: str
    larc_eta: float
    weight_decay_policy: str
    weight_decay_power: float
    larc_turbo: bool
    max_weight_decay: float
    plateau_winsize: _containers.RepeatedScalarFieldContainer[int]
    warmup_iter: int
    warmup_start_lr: float
    local_lr_auto: bool
    local_gw_ratio: float
    stagelr: _containers.RepeatedScalarFieldContainer[float]
    stageiter: _containers.RepeatedScalarFieldContainer[int]
    solver_data_type: Type
    store_blobs_in_old_format: bool
    test_and_snapshot_last_epochs: bool
    eval_type: str
    ap_version: str
    show_per_class_result: bool
    disabled_update: bool
    test_offset: int
    parallel_param: ParallelParameter
    engine: SolverParameter.Engine
    precision: Precision.Name
    on_nan: SolverParameter.OnNan
    cosine_param: CosineParameter
    onecycle_param: OneCycleParameter
    average_param: AverageParameter
    early_stopping_param: EarlyStoppingParameter
    snapshot_best: str
    max_snapshots: int
    def __init__(self, net: _Optional[str] = ..., net_param: _Optional[_Union[NetParameter, _Mapping]] = ..., train_net: _Optional[str] = ..., test_net: _Optional[_Iterable[str]] = ..., train_net_param: _Optional[_Union[NetParameter, _Mapping]] = ..., test_net_param: _Optional[_Iterable[_Union[NetParameter, _Mapping]]] = ..., train_state: _Optional[_Union[NetState, _Mapping]] = ..., test_state: _Optional[_Iterable[_Union[NetState, _Mapping]]] = ..., test_iter: _Optional[_Iterable[int]] = ..., test_interval: _Optional[int] = ..., test_compute_loss: _Optional[bool] = ..., test_initialization: _Optional[bool] = ..., base_lr: _Optional[float] = ..., display: _Optional[int] = ..., average_loss: _Optional[int] = ..., max_iter: _Optional[int] = ..., iter_size: _Optional[int] = ..., lr_policy: _Optional[str] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., momentum: _Optional[float] = ..., weight_decay: _Optional[float] = ..., regularization_type: _Optional[str] = ..., stepsize: _Optional[int] = ..., stepvalue: _Optional[_Iterable[int]] = ..., clip_gradients: _Optional[float] = ..., snapshot: _Optional[int] = ..., snapshot_prefix: _Optional[str] = ..., snapshot_diff: _Optional[bool] = ..., snapshot_format: _Optional[_Union[SolverParameter.SnapshotFormat, str]] = ..., solver_mode: _Optional[_Union[SolverParameter.SolverMode, str]] = ..., device_id: _Optional[int] = ..., random_seed: _Optional[int] = ..., type: _Optional[str] = ..., delta: _Optional[float] = ..., momentum2: _Optional[float] = ..., rms_decay: _Optional[float] = ..., debug_info: _Optional[bool] = ..., snapshot_after_train: _Optional[bool] = ..., solver_type: _Optional[_Union[SolverParameter.SolverType, str]] = ..., layer_wise_reduce: _Optional[bool] = ..., weights: _Optional[_Iterable[str]] = ..., rampup_interval: _Optional[int] = ..., rampup_lr: _Optional[float] = ..., min_lr: _Optional[float] = ..., momentum_policy: _Optional[str] = ..., max_momentum: _Optional[float] = ..., momentum_power: _Optional[float] = ..., larc: _Optional[bool] = ..., larc_policy: _Optional[str] = ..., larc_eta: _Optional[float] = ..., weight_decay_policy: _Optional[str] = ..., weight_decay_power: _Optional[float] = ..., larc_turbo: _Optional[bool] = ..., max_weight_decay: _Optional[float] = ..., plateau_winsize: _Optional[_Iterable[int]] = ..., warmup_iter: _Optional[int] = ..., warmup_start_lr: _Optional[float] = ..., local_lr_auto: _Optional[bool] = ..., local_gw_ratio: _Optional[float] = ..., stagelr: _Optional[_Iterable[float]] = ..., stageiter: _Optional[_Iterable[int]] = ..., solver_data_type: _Optional[_Union[Type, str]] = ..., store_blobs_in_old_format: _Optional[bool] = ..., test_and_snapshot_last_epochs: _Optional[bool] = ..., eval_type: _Optional[str] = ..., ap_version: _Optional[str] = ..., show_per_class_result: _Optional[bool] = ..., disabled_update: _Optional[bool] = ..., test_offset: _Optional[int] = ..., parallel_param: _Optional[_Union[ParallelParameter, _Mapping]] = ..., engine: _Optional[_Union[SolverParameter.Engine, str]] = ..., precision: _Optional[_Union[Precision.Name, str]] = ..., on_nan: _Optional[_Union[SolverParameter.OnNan, str]] = ..., cosine_param: _Optional[_Union[CosineParameter, _Mapping]] = ..., onecycle_param: _Optional[_Union[OneCycleParameter, _Mapping]] = ..., average_param: _Optional[_Union[AverageParameter, _Mapping]] = ..., early_stopping_param: _Optional[_Union[EarlyStoppingParameter, _Mapping]] = ..., snapshot_best: _Optional[str] = ..., max_snapshots: _Optional[int] = ...) -> None: ...

class CosineParameter(_message.Message):
    __slots__ = ("period", "growth")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FIELD_NUMBER: _ClassVar[int]
    period: int
    growth: int
    def __init__(self, period: _Optional[int] = ..., growth: _Optional[int] = ...) -> None: ...

class OneCycleParameter(_message.Message):
    __slots__ = ("rising", "div_factor", "final_div_factor")
    RISING_FIELD_NUMBER: _ClassVar[int]
    DIV_FACTOR_FIELD_NUMBER: _ClassVar[int]
    FINAL_DIV_FACTOR_FIELD_NUMBER: _ClassVar[int]
    rising: float
    div_factor: float
    final_div_factor: float
    def __init__(self, rising: _Optional[float] = ..., div_factor: _Optional[float] = ..., final_div_factor: _Optional[float] = ...) -> None: ...

class AverageParameter(_message.Message):
    __slots__ = ("kind", "decay", "start", "interval")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EMA: _ClassVar[AverageParameter.Kind]
        SWA: _ClassVar[AverageParameter.Kind]
    EMA: AverageParameter.Kind
    SWA: AverageParameter.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    DECAY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    kind: AverageParameter.Kind
    decay: float
    start: int
    interval: int
    def __init__(self, kind: _Optional[_Union[AverageParameter.Kind, str]] = ..., decay: _Optional[float] = ..., start: _Optional[int] = ..., interval: _Optional[int] = ...) -> None: ...

class EarlyStoppingParameter(_message.Message):
    __slots__ = ("output", "better", "patience", "min_delta")
    class Better(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AUTO: _ClassVar[EarlyStoppingParameter.Better]
        HIGHER: _ClassVar[EarlyStoppingParameter.Better]
        LOWER: _ClassVar[EarlyStoppingParameter.Better]
    AUTO: EarlyStoppingParameter.Better
    HIGHER: EarlyStoppingParameter.Better
    LOWER: EarlyStoppingParameter.Better
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BETTER_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    MIN_DELTA_FIELD_NUMBER: _ClassVar[int]
    output: str
    better: EarlyStoppingParameter.Better
    patience: int
    min_delta: float
    def __init__(self, output: _Optional[str] = ..., better: _Optional[_Union[EarlyStoppingParameter.Better, str]] = ..., patience: _Optional[int] = ..., min_delta: _Optional[float] = ...) -> None: ...

class Precision(_message.Message):
    __slots__ = ()
    class Name(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FLOAT32: _ClassVar[Precision.Name]
        FLOAT64: _ClassVar[Precision.Name]
        BFLOAT16: _ClassVar[Precision.Name]
        FLOAT16: _ClassVar[Precision.Name]
        AUTO: _ClassVar[Precision.Name]
    FLOAT32: Precision.Name
    FLOAT64: Precision.Name
    BFLOAT16: Precision.Name
    FLOAT16: Precision.Name
    AUTO: Precision.Name
    def __init__(self) -> None: ...

class SolverState(_message.Message):
    __slots__ = ("iter", "learned_net", "history", "current_step", "minimum_loss", "iter_last_event", "data_position", "engine", "loss_history", "random_seed", "solver_type", "inner", "half_layers", "loss_scale", "finite_iterations", "run", "written", "weights_digest", "checksum", "shares", "averaged", "best_score", "best_iter", "last_test", "tests_since_best", "chosen", "ranks", "algorithms", "exchange_memory", "exchange_ranks", "noise")
    ITER_FIELD_NUMBER: _ClassVar[int]
    LEARNED_NET_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STEP_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_LOSS_FIELD_NUMBER: _ClassVar[int]
    ITER_LAST_EVENT_FIELD_NUMBER: _ClassVar[int]
    DATA_POSITION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    LOSS_HISTORY_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    SOLVER_TYPE_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    HALF_LAYERS_FIELD_NUMBER: _ClassVar[int]
    LOSS_SCALE_FIELD_NUMBER: _ClassVar[int]
    FINITE_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    AVERAGED_FIELD_NUMBER: _ClassVar[int]
    BEST_SCORE_FIELD_NUMBER: _ClassVar[int]
    BEST_ITER_FIELD_NUMBER: _ClassVar[int]
    LAST_TEST_FIELD_NUMBER: _ClassVar[int]
    TESTS_SINCE_BEST_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHMS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_MEMORY_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_RANKS_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    iter: int
    learned_net: str
    history: _containers.RepeatedCompositeFieldContainer[BlobProto]
    current_step: int
    minimum_loss: float
    iter_last_event: int
    data_position: _containers.RepeatedCompositeFieldContainer[DataPosition]
    engine: SolverParameter.Engine
    loss_history: _containers.RepeatedScalarFieldContainer[float]
    random_seed: int
    solver_type: str
    inner: InnerParameter.Engine
    half_layers: _containers.RepeatedScalarFieldContainer[int]
    loss_scale: float
    finite_iterations: int
    run: str
    written: float
    weights_digest: bytes
    checksum: bytes
    shares: _containers.RepeatedScalarFieldContainer[int]
    averaged: bool
    best_score: float
    best_iter: int
    last_test: int
    tests_since_best: int
    chosen: ParallelParameter
    ranks: int
    algorithms: _containers.RepeatedScalarFieldContainer[int]
    exchange_memory: _containers.RepeatedCompositeFieldContainer[ExchangeMemory]
    exchange_ranks: int
    noise: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, iter: _Optional[int] = ..., learned_net: _Optional[str] = ..., history: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., current_step: _Optional[int] = ..., minimum_loss: _Optional[float] = ..., iter_last_event: _Optional[int] = ..., data_position: _Optional[_Iterable[_Union[DataPosition, _Mapping]]] = ..., engine: _Optional[_Union[SolverParameter.Engine, str]] = ..., loss_history: _Optional[_Iterable[float]] = ..., random_seed: _Optional[int] = ..., solver_type: _Optional[str] = ..., inner: _Optional[_Union[InnerParameter.Engine, str]] = ..., half_layers: _Optional[_Iterable[int]] = ..., loss_scale: _Optional[float] = ..., finite_iterations: _Optional[int] = ..., run: _Optional[str] = ..., written: _Optional[float] = ..., weights_digest: _Optional[bytes] = ..., checksum: _Optional[bytes] = ..., shares: _Optional[_Iterable[int]] = ..., averaged: _Optional[bool] = ..., best_score: _Optional[float] = ..., best_iter: _Optional[int] = ..., last_test: _Optional[int] = ..., tests_since_best: _Optional[int] = ..., chosen: _Optional[_Union[ParallelParameter, _Mapping]] = ..., ranks: _Optional[int] = ..., algorithms: _Optional[_Iterable[int]] = ..., exchange_memory: _Optional[_Iterable[_Union[ExchangeMemory, _Mapping]]] = ..., exchange_ranks: _Optional[int] = ..., noise: _Optional[_Iterable[float]] = ...) -> None: ...

class ExchangeMemory(_message.Message):
    __slots__ = ("rank", "exchange", "name", "values")
    RANK_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    exchange: str
    name: str
    values: BlobProto
    def __init__(self, rank: _Optional[int] = ..., exchange: _Optional[str] = ..., name: _Optional[str] = ..., values: _Optional[_Union[BlobProto, _Mapping]] = ...) -> None: ...

class DataPosition(_message.Message):
    __slots__ = ("net", "layer", "samples")
    NET_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    net: str
    layer: str
    samples: int
    def __init__(self, net: _Optional[str] = ..., layer: _Optional[str] = ..., samples: _Optional[int] = ...) -> None: ...

class ParallelParameter(_message.Message):
    __slots__ = ("num_stages", "num_shards", "batch_scope", "exchange", "cgdp_param", "agwu_param", "balance", "balance_param", "fc_param", "pipeline_param", "inner_param", "sync_batch_norm", "server", "ship_data", "servers", "tree_param", "fault_param", "auto", "compression_param", "local_param", "transport", "update", "outer_param", "replica")
    class BatchScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GLOBAL: _ClassVar[ParallelParameter.BatchScope]
        REPLICA: _ClassVar[ParallelParameter.BatchScope]
    GLOBAL: ParallelParameter.BatchScope
    REPLICA: ParallelParameter.BatchScope
    class Exchange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALLREDUCE: _ClassVar[ParallelParameter.Exchange]
        TREE: _ClassVar[ParallelParameter.Exchange]
        CGDP: _ClassVar[ParallelParameter.Exchange]
        SGWU: _ClassVar[ParallelParameter.Exchange]
        AGWU: _ClassVar[ParallelParameter.Exchange]
        ASGD: _ClassVar[ParallelParameter.Exchange]
        RING: _ClassVar[ParallelParameter.Exchange]
        LOCAL: _ClassVar[ParallelParameter.Exchange]
    ALLREDUCE: ParallelParameter.Exchange
    TREE: ParallelParameter.Exchange
    CGDP: ParallelParameter.Exchange
    SGWU: ParallelParameter.Exchange
    AGWU: ParallelParameter.Exchange
    ASGD: ParallelParameter.Exchange
    RING: ParallelParameter.Exchange
    LOCAL: ParallelParameter.Exchange
    class Balance(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIFORM: _ClassVar[ParallelParameter.Balance]
        STATIC: _ClassVar[ParallelParameter.Balance]
        IDPA: _ClassVar[ParallelParameter.Balance]
        DYNAMIC: _ClassVar[ParallelParameter.Balance]
    UNIFORM: ParallelParameter.Balance
    STATIC: ParallelParameter.Balance
    IDPA: ParallelParameter.Balance
    DYNAMIC: ParallelParameter.Balance
    class Server(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEDICATED: _ClassVar[ParallelParameter.Server]
        COLOCATED: _ClassVar[ParallelParameter.Server]
    DEDICATED: ParallelParameter.Server
    COLOCATED: ParallelParameter.Server
    class Transport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MPI: _ClassVar[ParallelParameter.Transport]
        TORCH_DISTRIBUTED: _ClassVar[ParallelParameter.Transport]
    MPI: ParallelParameter.Transport
    TORCH_DISTRIBUTED: ParallelParameter.Transport
    class Update(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REPLICATED: _ClassVar[ParallelParameter.Update]
        SHARDED: _ClassVar[ParallelParameter.Update]
        HOST: _ClassVar[ParallelParameter.Update]
    REPLICATED: ParallelParameter.Update
    SHARDED: ParallelParameter.Update
    HOST: ParallelParameter.Update
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    NUM_SHARDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    CGDP_PARAM_FIELD_NUMBER: _ClassVar[int]
    AGWU_PARAM_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    BALANCE_PARAM_FIELD_NUMBER: _ClassVar[int]
    FC_PARAM_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PARAM_FIELD_NUMBER: _ClassVar[int]
    SYNC_BATCH_NORM_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SHIP_DATA_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    TREE_PARAM_FIELD_NUMBER: _ClassVar[int]
    FAULT_PARAM_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    OUTER_PARAM_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    num_stages: int
    num_shards: int
    batch_scope: ParallelParameter.BatchScope
    exchange: ParallelParameter.Exchange
    cgdp_param: CgdpParameter
    agwu_param: AgwuParameter
    balance: ParallelParameter.Balance
    balance_param: BalanceParameter
    fc_param: FcParameter
    pipeline_param: PipelineParameter
    inner_param: InnerParameter
    sync_batch_norm: bool
    server: ParallelParameter.Server
    ship_data: bool
    servers: int
    tree_param: TreeParameter
    fault_param: FaultParameter
    auto: bool
    compression_param: CompressionParameter
    local_param: LocalParameter
    transport: ParallelParameter.Transport
    update: ParallelParameter.Update
    outer_param: OuterParameter
    replica: _containers.RepeatedCompositeFieldContainer[ReplicaParameter]
    def __init__(self, num_stages: _Optional[int] = ..., num_shards: _Optional[int] = ..., batch_scope: _Optional[_Union[ParallelParameter.BatchScope, str]] = ..., exchange: _Optional[_Union[ParallelParameter.Exchange, str]] = ..., cgdp_param: _Optional[_Union[CgdpParameter, _Mapping]] = ..., agwu_param: _Optional[_Union[AgwuParameter, _Mapping]] = ..., balance: _Optional[_Union[ParallelParameter.Balance, str]] = ..., balance_param: _Optional[_Union[BalanceParameter, _Mapping]] = ..., fc_param: _Optional[_Union[FcParameter, _Mapping]] = ..., pipeline_param: _Optional[_Union[PipelineParameter, _Mapping]] = ..., inner_param: _Optional[_Union[InnerParameter, _Mapping]] = ..., sync_batch_norm: _Optional[bool] = ..., server: _Optional[_Union[ParallelParameter.Server, str]] = ..., ship_data: _Optional[bool] = ..., servers: _Optional[int] = ..., tree_param: _Optional[_Union[TreeParameter, _Mapping]] = ..., fault_param: _Optional[_Union[FaultParameter, _Mapping]] = ..., auto: _Optional[bool] = ..., compression_param: _Optional[_Union[CompressionParameter, _Mapping]] = ..., local_param: _Optional[_Union[LocalParameter, _Mapping]] = ..., transport: _Optional[_Union[ParallelParameter.Transport, str]] = ..., update: _Optional[_Union[ParallelParameter.Update, str]] = ..., outer_param: _Optional[_Union[OuterParameter, _Mapping]] = ..., replica: _Optional[_Iterable[_Union[ReplicaParameter, _Mapping]]] = ...) -> None: ...

class OuterParameter(_message.Message):
    __slots__ = ("type", "lr", "momentum")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[OuterParameter.Type]
        NESTEROV: _ClassVar[OuterParameter.Type]
        DELAYED_NESTEROV: _ClassVar[OuterParameter.Type]
    NONE: OuterParameter.Type
    NESTEROV: OuterParameter.Type
    DELAYED_NESTEROV: OuterParameter.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LR_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    type: OuterParameter.Type
    lr: float
    momentum: float
    def __init__(self, type: _Optional[_Union[OuterParameter.Type, str]] = ..., lr: _Optional[float] = ..., momentum: _Optional[float] = ...) -> None: ...

class ReplicaParameter(_message.Message):
    __slots__ = ("ranks", "num_stages")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    ranks: int
    num_stages: int
    def __init__(self, ranks: _Optional[int] = ..., num_stages: _Optional[int] = ...) -> None: ...

class CompressionParameter(_message.Message):
    __slots__ = ("codec", "ratio", "rank", "warm_up", "links")
    class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[CompressionParameter.Codec]
        BF16: _ClassVar[CompressionParameter.Codec]
        FP16: _ClassVar[CompressionParameter.Codec]
        TOPK: _ClassVar[CompressionParameter.Codec]
        POWERSGD: _ClassVar[CompressionParameter.Codec]
    NONE: CompressionParameter.Codec
    BF16: CompressionParameter.Codec
    FP16: CompressionParameter.Codec
    TOPK: CompressionParameter.Codec
    POWERSGD: CompressionParameter.Codec
    class Links(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BETWEEN_HOSTS: _ClassVar[CompressionParameter.Links]
        ALL: _ClassVar[CompressionParameter.Links]
    BETWEEN_HOSTS: CompressionParameter.Links
    ALL: CompressionParameter.Links
    CODEC_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    codec: CompressionParameter.Codec
    ratio: float
    rank: int
    warm_up: int
    links: CompressionParameter.Links
    def __init__(self, codec: _Optional[_Union[CompressionParameter.Codec, str]] = ..., ratio: _Optional[float] = ..., rank: _Optional[int] = ..., warm_up: _Optional[int] = ..., links: _Optional[_Union[CompressionParameter.Links, str]] = ...) -> None: ...

class LocalParameter(_message.Message):
    __slots__ = ("steps", "start_iter", "momentum", "sum_within_hosts")
    class Momentum(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AVERAGE: _ClassVar[LocalParameter.Momentum]
        KEEP: _ClassVar[LocalParameter.Momentum]
        RESET: _ClassVar[LocalParameter.Momentum]
    AVERAGE: LocalParameter.Momentum
    KEEP: LocalParameter.Momentum
    RESET: LocalParameter.Momentum
    STEPS_FIELD_NUMBER: _ClassVar[int]
    START_ITER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    SUM_WITHIN_HOSTS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    start_iter: int
    momentum: LocalParameter.Momentum
    sum_within_hosts: bool
    def __init__(self, steps: _Optional[int] = ..., start_iter: _Optional[int] = ..., momentum: _Optional[_Union[LocalParameter.Momentum, str]] = ..., sum_within_hosts: _Optional[bool] = ...) -> None: ...

class FaultParameter(_message.Message):
    __slots__ = ("on_loss", "min_ranks", "copies", "copy_interval", "timeout", "spares", "memory_snapshot")
    class OnLoss(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HEAL: _ClassVar[FaultParameter.OnLoss]
        STOP: _ClassVar[FaultParameter.OnLoss]
    HEAL: FaultParameter.OnLoss
    STOP: FaultParameter.OnLoss
    ON_LOSS_FIELD_NUMBER: _ClassVar[int]
    MIN_RANKS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    COPY_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    on_loss: FaultParameter.OnLoss
    min_ranks: int
    copies: int
    copy_interval: int
    timeout: float
    spares: int
    memory_snapshot: int
    def __init__(self, on_loss: _Optional[_Union[FaultParameter.OnLoss, str]] = ..., min_ranks: _Optional[int] = ..., copies: _Optional[int] = ..., copy_interval: _Optional[int] = ..., timeout: _Optional[float] = ..., spares: _Optional[int] = ..., memory_snapshot: _Optional[int] = ...) -> None: ...

class TreeParameter(_message.Message):
    __slots__ = ("sends",)
    class Sends(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PAIRWISE: _ClassVar[TreeParameter.Sends]
        LIBRARY: _ClassVar[TreeParameter.Sends]
    PAIRWISE: TreeParameter.Sends
    LIBRARY: TreeParameter.Sends
    SENDS_FIELD_NUMBER: _ClassVar[int]
    sends: TreeParameter.Sends
    def __init__(self, sends: _Optional[_Union[TreeParameter.Sends, str]] = ...) -> None: ...

class CgdpParameter(_message.Message):
    __slots__ = ("chunk_size", "step", "range", "interval", "chunking", "choice")
    class Chunking(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIFORM: _ClassVar[CgdpParameter.Chunking]
        MODEL: _ClassVar[CgdpParameter.Chunking]
    UNIFORM: CgdpParameter.Chunking
    MODEL: CgdpParameter.Chunking
    CHUNK_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    CHUNKING_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    chunk_size: int
    step: int
    range: int
    interval: int
    chunking: CgdpParameter.Chunking
    choice: str
    def __init__(self, chunk_size: _Optional[int] = ..., step: _Optional[int] = ..., range: _Optional[int] = ..., interval: _Optional[int] = ..., chunking: _Optional[_Union[CgdpParameter.Chunking, str]] = ..., choice: _Optional[str] = ...) -> None: ...

class AgwuParameter(_message.Message):
    __slots__ = ("normalizer", "local_epochs", "max_staleness", "weigh_by_accuracy", "push", "fetch", "ranks", "worker_exchange", "weigh_by_samples", "accuracy", "local_updates", "staleness", "staleness_limit", "compensation")
    class Normalizer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OTHERS: _ClassVar[AgwuParameter.Normalizer]
        ALL: _ClassVar[AgwuParameter.Normalizer]
    OTHERS: AgwuParameter.Normalizer
    ALL: AgwuParameter.Normalizer
    class Accuracy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DURING_EPOCH: _ClassVar[AgwuParameter.Accuracy]
        AFTER_EPOCH: _ClassVar[AgwuParameter.Accuracy]
    DURING_EPOCH: AgwuParameter.Accuracy
    AFTER_EPOCH: AgwuParameter.Accuracy
    class LocalUpdates(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EPOCHS: _ClassVar[AgwuParameter.LocalUpdates]
        BY_SPEED: _ClassVar[AgwuParameter.LocalUpdates]
    EPOCHS: AgwuParameter.LocalUpdates
    BY_SPEED: AgwuParameter.LocalUpdates
    class Staleness(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[AgwuParameter.Staleness]
        INVERSE: _ClassVar[AgwuParameter.Staleness]
        COMPENSATE: _ClassVar[AgwuParameter.Staleness]
        DISCARD: _ClassVar[AgwuParameter.Staleness]
        TABLE: _ClassVar[AgwuParameter.Staleness]
    NONE: AgwuParameter.Staleness
    INVERSE: AgwuParameter.Staleness
    COMPENSATE: AgwuParameter.Staleness
    DISCARD: AgwuParameter.Staleness
    TABLE: AgwuParameter.Staleness
    NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    LOCAL_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    WEIGH_BY_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    WORKER_EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    WEIGH_BY_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    LOCAL_UPDATES_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    COMPENSATION_FIELD_NUMBER: _ClassVar[int]
    normalizer: AgwuParameter.Normalizer
    local_epochs: int
    max_staleness: int
    weigh_by_accuracy: bool
    push: int
    fetch: int
    ranks: int
    worker_exchange: ParallelParameter.Exchange
    weigh_by_samples: bool
    accuracy: AgwuParameter.Accuracy
    local_updates: AgwuParameter.LocalUpdates
    staleness: AgwuParameter.Staleness
    staleness_limit: int
    compensation: float
    def __init__(self, normalizer: _Optional[_Union[AgwuParameter.Normalizer, str]] = ..., local_epochs: _Optional[int] = ..., max_staleness: _Optional[int] = ..., weigh_by_accuracy: _Optional[bool] = ..., push: _Optional[int] = ..., fetch: _Optional[int] = ..., ranks: _Optional[int] = ..., worker_exchange: _Optional[_Union[ParallelParameter.Exchange, str]] = ..., weigh_by_samples: _Optional[bool] = ..., accuracy: _Optional[_Union[AgwuParameter.Accuracy, str]] = ..., local_updates: _Optional[_Union[AgwuParameter.LocalUpdates, str]] = ..., staleness: _Optional[_Union[AgwuParameter.Staleness, str]] = ..., staleness_limit: _Optional[int] = ..., compensation: _Optional[float] = ...) -> None: ...

class BalanceParameter(_message.Message):
    __slots__ = ("profile", "num_batches", "rule", "normalizer", "finish", "migrate", "by", "batch")
    class Rule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HARMONIC: _ClassVar[BalanceParameter.Rule]
        PAPER: _ClassVar[BalanceParameter.Rule]
    HARMONIC: BalanceParameter.Rule
    PAPER: BalanceParameter.Rule
    class Normalizer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SHARE: _ClassVar[BalanceParameter.Normalizer]
        UNIFORM: _ClassVar[BalanceParameter.Normalizer]
    SHARE: BalanceParameter.Normalizer
    UNIFORM: BalanceParameter.Normalizer
    class Finish(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TOGETHER: _ClassVar[BalanceParameter.Finish]
        PASSES: _ClassVar[BalanceParameter.Finish]
    TOGETHER: BalanceParameter.Finish
    PASSES: BalanceParameter.Finish
    class By(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COMPUTE: _ClassVar[BalanceParameter.By]
        ITERATION: _ClassVar[BalanceParameter.By]
    COMPUTE: BalanceParameter.By
    ITERATION: BalanceParameter.By
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    NUM_BATCHES_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    MIGRATE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    profile: str
    num_batches: int
    rule: BalanceParameter.Rule
    normalizer: BalanceParameter.Normalizer
    finish: BalanceParameter.Finish
    migrate: bool
    by: BalanceParameter.By
    batch: BatchParameter
    def __init__(self, profile: _Optional[str] = ..., num_batches: _Optional[int] = ..., rule: _Optional[_Union[BalanceParameter.Rule, str]] = ..., normalizer: _Optional[_Union[BalanceParameter.Normalizer, str]] = ..., finish: _Optional[_Union[BalanceParameter.Finish, str]] = ..., migrate: _Optional[bool] = ..., by: _Optional[_Union[BalanceParameter.By, str]] = ..., batch: _Optional[_Union[BatchParameter, _Mapping]] = ...) -> None: ...

class BatchParameter(_message.Message):
    __slots__ = ("rule", "min", "max")
    class Rule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FIXED: _ClassVar[BatchParameter.Rule]
        NOISE_SCALE: _ClassVar[BatchParameter.Rule]
    FIXED: BatchParameter.Rule
    NOISE_SCALE: BatchParameter.Rule
    RULE_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    rule: BatchParameter.Rule
    min: int
    max: int
    def __init__(self, rule: _Optional[_Union[BatchParameter.Rule, str]] = ..., min: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class FcParameter(_message.Message):
    __slots__ = ("scheme", "pieces")
    class Scheme(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PEER: _ClassVar[FcParameter.Scheme]
        MASTER_SLAVE: _ClassVar[FcParameter.Scheme]
    PEER: FcParameter.Scheme
    MASTER_SLAVE: FcParameter.Scheme
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    scheme: FcParameter.Scheme
    pieces: int
    def __init__(self, scheme: _Optional[_Union[FcParameter.Scheme, str]] = ..., pieces: _Optional[int] = ...) -> None: ...

class PipelineParameter(_message.Message):
    __slots__ = ("allocator", "schedule", "micro_batches", "objective", "devices", "costs", "partitions", "gabra_param", "partition_by", "capacity", "batch_norm_over", "recompute", "correction")
    class Allocator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BLOCK: _ClassVar[PipelineParameter.Allocator]
        GABRA: _ClassVar[PipelineParameter.Allocator]
        EXACT: _ClassVar[PipelineParameter.Allocator]
        MANUAL: _ClassVar[PipelineParameter.Allocator]
    BLOCK: PipelineParameter.Allocator
    GABRA: PipelineParameter.Allocator
    EXACT: PipelineParameter.Allocator
    MANUAL: PipelineParameter.Allocator
    class Schedule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GPIPE: _ClassVar[PipelineParameter.Schedule]
        SEQUENTIAL: _ClassVar[PipelineParameter.Schedule]
        ONE_F_ONE_B: _ClassVar[PipelineParameter.Schedule]
        DELAYED: _ClassVar[PipelineParameter.Schedule]
        ZERO_BUBBLE: _ClassVar[PipelineParameter.Schedule]
    GPIPE: PipelineParameter.Schedule
    SEQUENTIAL: PipelineParameter.Schedule
    ONE_F_ONE_B: PipelineParameter.Schedule
    DELAYED: PipelineParameter.Schedule
    ZERO_BUBBLE: PipelineParameter.Schedule
    class Objective(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STEP_TIME: _ClassVar[PipelineParameter.Objective]
        PROFIT: _ClassVar[PipelineParameter.Objective]
    STEP_TIME: PipelineParameter.Objective
    PROFIT: PipelineParameter.Objective
    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LAYERS: _ClassVar[PipelineParameter.Unit]
        CONV_BLOCKS: _ClassVar[PipelineParameter.Unit]
    LAYERS: PipelineParameter.Unit
    CONV_BLOCKS: PipelineParameter.Unit
    class Correction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[PipelineParameter.Correction]
        NESTEROV: _ClassVar[PipelineParameter.Correction]
    NONE: PipelineParameter.Correction
    NESTEROV: PipelineParameter.Correction
    class BatchNormOver(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MICRO_BATCH: _ClassVar[PipelineParameter.BatchNormOver]
        BATCH: _ClassVar[PipelineParameter.BatchNormOver]
    MICRO_BATCH: PipelineParameter.BatchNormOver
    BATCH: PipelineParameter.BatchNormOver
    ALLOCATOR_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCHES_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GABRA_PARAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_BY_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    BATCH_NORM_OVER_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    CORRECTION_FIELD_NUMBER: _ClassVar[int]
    allocator: PipelineParameter.Allocator
    schedule: PipelineParameter.Schedule
    micro_batches: int
    objective: PipelineParameter.Objective
    devices: str
    costs: str
    partitions: int
    gabra_param: GabraParameter
    partition_by: PipelineParameter.Unit
    capacity: _containers.RepeatedScalarFieldContainer[float]
    batch_norm_over: PipelineParameter.BatchNormOver
    recompute: bool
    correction: PipelineParameter.Correction
    def __init__(self, allocator: _Optional[_Union[PipelineParameter.Allocator, str]] = ..., schedule: _Optional[_Union[PipelineParameter.Schedule, str]] = ..., micro_batches: _Optional[int] = ..., objective: _Optional[_Union[PipelineParameter.Objective, str]] = ..., devices: _Optional[str] = ..., costs: _Optional[str] = ..., partitions: _Optional[int] = ..., gabra_param: _Optional[_Union[GabraParameter, _Mapping]] = ..., partition_by: _Optional[_Union[PipelineParameter.Unit, str]] = ..., capacity: _Optional[_Iterable[float]] = ..., batch_norm_over: _Optional[_Union[PipelineParameter.BatchNormOver, str]] = ..., recompute: _Optional[bool] = ..., correction: _Optional[_Union[PipelineParameter.Correction, str]] = ...) -> None: ...

class GabraParameter(_message.Message):
    __slots__ = ("population", "generations", "crossover", "seed")
    POPULATION_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    CROSSOVER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    population: int
    generations: int
    crossover: float
    seed: int
    def __init__(self, population: _Optional[int] = ..., generations: _Optional[int] = ..., crossover: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class InnerParameter(_message.Message):
    __slots__ = ("engine", "num_threads")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LIBRARY: _ClassVar[InnerParameter.Engine]
        TASK_DAG: _ClassVar[InnerParameter.Engine]
        AUTO: _ClassVar[InnerParameter.Engine]
    LIBRARY: InnerParameter.Engine
    TASK_DAG: InnerParameter.Engine
    AUTO: InnerParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    engine: InnerParameter.Engine
    num_threads: int
    def __init__(self, engine: _Optional[_Union[InnerParameter.Engine, str]] = ..., num_threads: _Optional[int] = ...) -> None: ...

class ClusterParameter(_message.Message):
    __slots__ = ("node", "server", "within", "link", "shared_bandwidth", "waking", "allreduce_efficiency", "busy_waking", "busy_efficiency")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SHARED_BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    WAKING_FIELD_NUMBER: _ClassVar[int]
    ALLREDUCE_EFFICIENCY_FIELD_NUMBER: _ClassVar[int]
    BUSY_WAKING_FIELD_NUMBER: _ClassVar[int]
    BUSY_EFFICIENCY_FIELD_NUMBER: _ClassVar[int]
    node: _containers.RepeatedCompositeFieldContainer[NodeParameter]
    server: ServerParameter
    within: WithinParameter
    link: _containers.RepeatedCompositeFieldContainer[LinkParameter]
    shared_bandwidth: float
    waking: float
    allreduce_efficiency: float
    busy_waking: float
    busy_efficiency: float
    def __init__(self, node: _Optional[_Iterable[_Union[NodeParameter, _Mapping]]] = ..., server: _Optional[_Union[ServerParameter, _Mapping]] = ..., within: _Optional[_Union[WithinParameter, _Mapping]] = ..., link: _Optional[_Iterable[_Union[LinkParameter, _Mapping]]] = ..., shared_bandwidth: _Optional[float] = ..., waking: _Optional[float] = ..., allreduce_efficiency: _Optional[float] = ..., busy_waking: _Optional[float] = ..., busy_efficiency: _Optional[float] = ...) -> None: ...

class LinkParameter(_message.Message):
    __slots__ = ("one", "other", "latency", "bandwidth")
    ONE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    one: str
    other: str
    latency: float
    bandwidth: float
    def __init__(self, one: _Optional[str] = ..., other: _Optional[str] = ..., latency: _Optional[float] = ..., bandwidth: _Optional[float] = ...) -> None: ...

class NodeParameter(_message.Message):
    __slots__ = ("name", "count", "samples_per_second", "gflops", "spread", "noise", "frequency", "latency", "bandwidth", "change", "fails", "memory", "capacity", "ranks", "cores", "overhead", "update", "warm_up", "coding", "border", "interference", "border_overhead")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    GFLOPS_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    FAILS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    CODING_FIELD_NUMBER: _ClassVar[int]
    BORDER_FIELD_NUMBER: _ClassVar[int]
    INTERFERENCE_FIELD_NUMBER: _ClassVar[int]
    BORDER_OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    samples_per_second: float
    gflops: float
    spread: float
    noise: float
    frequency: float
    latency: float
    bandwidth: float
    change: _containers.RepeatedCompositeFieldContainer[SpeedChange]
    fails: float
    memory: float
    capacity: float
    ranks: int
    cores: int
    overhead: float
    update: float
    warm_up: float
    coding: _containers.RepeatedCompositeFieldContainer[CodingParameter]
    border: float
    interference: float
    border_overhead: float
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., samples_per_second: _Optional[float] = ..., gflops: _Optional[float] = ..., spread: _Optional[float] = ..., noise: _Optional[float] = ..., frequency: _Optional[float] = ..., latency: _Optional[float] = ..., bandwidth: _Optional[float] = ..., change: _Optional[_Iterable[_Union[SpeedChange, _Mapping]]] = ..., fails: _Optional[float] = ..., memory: _Optional[float] = ..., capacity: _Optional[float] = ..., ranks: _Optional[int] = ..., cores: _Optional[int] = ..., overhead: _Optional[float] = ..., update: _Optional[float] = ..., warm_up: _Optional[float] = ..., coding: _Optional[_Iterable[_Union[CodingParameter, _Mapping]]] = ..., border: _Optional[float] = ..., interference: _Optional[float] = ..., border_overhead: _Optional[float] = ...) -> None: ...

class CodingParameter(_message.Message):
    __slots__ = ("codec", "seconds")
    CODEC_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    codec: CompressionParameter.Codec
    seconds: float
    def __init__(self, codec: _Optional[_Union[CompressionParameter.Codec, str]] = ..., seconds: _Optional[float] = ...) -> None: ...

class WithinParameter(_message.Message):
    __slots__ = ("latency", "bandwidth")
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    latency: float
    bandwidth: float
    def __init__(self, latency: _Optional[float] = ..., bandwidth: _Optional[float] = ...) -> None: ...

class SpeedChange(_message.Message):
    __slots__ = ("at", "factor")
    AT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    at: float
    factor: float
    def __init__(self, at: _Optional[float] = ..., factor: _Optional[float] = ...) -> None: ...

class ServerParameter(_message.Message):
    __slots__ = ("latency", "bandwidth", "update_rate")
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    UPDATE_RATE_FIELD_NUMBER: _ClassVar[int]
    latency: float
    bandwidth: float
    update_rate: float
    def __init__(self, latency: _Optional[float] = ..., bandwidth: _Optional[float] = ..., update_rate: _Optional[float] = ...) -> None: ...

class LayerParallelParameter(_message.Message):
    __slots__ = ("mode", "stage", "block")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DATA: _ClassVar[LayerParallelParameter.Mode]
        MODEL: _ClassVar[LayerParallelParameter.Mode]
    DATA: LayerParallelParameter.Mode
    MODEL: LayerParallelParameter.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    mode: LayerParallelParameter.Mode
    stage: int
    block: str
    def __init__(self, mode: _Optional[_Union[LayerParallelParameter.Mode, str]] = ..., stage: _Optional[int] = ..., block: _Optional[str] = ...) -> None: ...

class BlobShape(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class BlobProto(_message.Message):
    __slots__ = ("shape", "data", "diff", "double_data", "double_diff", "num", "channels", "height", "width", "raw_data_type", "raw_diff_type", "raw_data", "raw_diff")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DATA_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DIFF_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DIFF_TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_FIELD_NUMBER: _ClassVar[int]
    RAW_DIFF_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    data: _containers.RepeatedScalarFieldContainer[float]
    diff: _containers.RepeatedScalarFieldContainer[float]
    double_data: _containers.RepeatedScalarFieldContainer[float]
    double_diff: _containers.RepeatedScalarFieldContainer[float]
    num: int
    channels: int
    height: int
    width: int
    raw_data_type: Type
    raw_diff_type: Type
    raw_data: bytes
    raw_diff: bytes
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ..., data: _Optional[_Iterable[float]] = ..., diff: _Optional[_Iterable[float]] = ..., double_data: _Optional[_Iterable[float]] = ..., double_diff: _Optional[_Iterable[float]] = ..., num: _Optional[int] = ..., channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., raw_data_type: _Optional[_Union[Type, str]] = ..., raw_diff_type: _Optional[_Union[Type, str]] = ..., raw_data: _Optional[bytes] = ..., raw_diff: _Optional[bytes] = ...) -> None: ...

class BlobProtoVector(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    def __init__(self, blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ...) -> None: ...

class Datum(_message.Message):
    __slots__ = ("channels", "height", "width", "data", "label", "float_data", "encoded")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FLOAT_DATA_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    channels: int
    height: int
    width: int
    data: bytes
    label: int
    float_data: _containers.RepeatedScalarFieldContainer[float]
    encoded: bool
    def __init__(self, channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., data: _Optional[bytes] = ..., label: _Optional[int] = ..., float_data: _Optional[_Iterable[float]] = ..., encoded: _Optional[bool] = ...) -> None: ...

class TransformationParameter(_message.Message):
    __slots__ = ("scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray", "resize_param", "noise_param", "emit_constraint", "crop_h", "crop_w", "distort_param", "expand_param", "random_resize_param", "random_aspect_ratio_param", "num_workers", "augment_param")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    MEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    FORCE_COLOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_GRAY_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMIT_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    CROP_H_FIELD_NUMBER: _ClassVar[int]
    CROP_W_FIELD_NUMBER: _ClassVar[int]
    DISTORT_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXPAND_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANDOM_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANDOM_ASPECT_RATIO_PARAM_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    AUGMENT_PARAM_FIELD_NUMBER: _ClassVar[int]
    scale: float
    mirror: bool
    crop_size: int
    mean_file: str
    mean_value: _containers.RepeatedScalarFieldContainer[float]
    force_color: bool
    force_gray: bool
    resize_param: ResizeParameter
    noise_param: NoiseParameter
    emit_constraint: EmitConstraint
    crop_h: int
    crop_w: int
    distort_param: DistortionParameter
    expand_param: ExpansionParameter
    random_resize_param: RandomResizeParameter
    random_aspect_ratio_param: RandomAspectRatioParameter
    num_workers: int
    augment_param: AugmentParameter
    def __init__(self, scale: _Optional[float] = ..., mirror: _Optional[bool] = ..., crop_size: _Optional[int] = ..., mean_file: _Optional[str] = ..., mean_value: _Optional[_Iterable[float]] = ..., force_color: _Optional[bool] = ..., force_gray: _Optional[bool] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ..., noise_param: _Optional[_Union[NoiseParameter, _Mapping]] = ..., emit_constraint: _Optional[_Union[EmitConstraint, _Mapping]] = ..., crop_h: _Optional[int] = ..., crop_w: _Optional[int] = ..., distort_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., expand_param: _Optional[_Union[ExpansionParameter, _Mapping]] = ..., random_resize_param: _Optional[_Union[RandomResizeParameter, _Mapping]] = ..., random_aspect_ratio_param: _Optional[_Union[RandomAspectRatioParameter, _Mapping]] = ..., num_workers: _Optional[int] = ..., augment_param: _Optional[_Union[AugmentParameter, _Mapping]] = ...) -> None: ...

class AugmentParameter(_message.Message):
    __slots__ = ("resized_crop", "min_area", "max_area", "min_ratio", "max_ratio", "mirror_vertical", "rotation", "brightness", "contrast", "saturation", "hue", "erasing", "min_erase_area", "max_erase_area", "mixup", "cutmix", "num_classes")
    RESIZED_CROP_FIELD_NUMBER: _ClassVar[int]
    MIN_AREA_FIELD_NUMBER: _ClassVar[int]
    MAX_AREA_FIELD_NUMBER: _ClassVar[int]
    MIN_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_RATIO_FIELD_NUMBER: _ClassVar[int]
    MIRROR_VERTICAL_FIELD_NUMBER: _ClassVar[int]
    ROTATION_FIELD_NUMBER: _ClassVar[int]
    BRIGHTNESS_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_FIELD_NUMBER: _ClassVar[int]
    SATURATION_FIELD_NUMBER: _ClassVar[int]
    HUE_FIELD_NUMBER: _ClassVar[int]
    ERASING_FIELD_NUMBER: _ClassVar[int]
    MIN_ERASE_AREA_FIELD_NUMBER: _ClassVar[int]
    MAX_ERASE_AREA_FIELD_NUMBER: _ClassVar[int]
    MIXUP_FIELD_NUMBER: _ClassVar[int]
    CUTMIX_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    resized_crop: int
    min_area: float
    max_area: float
    min_ratio: float
    max_ratio: float
    mirror_vertical: bool
    rotation: float
    brightness: float
    contrast: float
    saturation: float
    hue: float
    erasing: float
    min_erase_area: float
    max_erase_area: float
    mixup: float
    cutmix: float
    num_classes: int
    def __init__(self, resized_crop: _Optional[int] = ..., min_area: _Optional[float] = ..., max_area: _Optional[float] = ..., min_ratio: _Optional[float] = ..., max_ratio: _Optional[float] = ..., mirror_vertical: _Optional[bool] = ..., rotation: _Optional[float] = ..., brightness: _Optional[float] = ..., contrast: _Optional[float] = ..., saturation: _Optional[float] = ..., hue: _Optional[float] = ..., erasing: _Optional[float] = ..., min_erase_area: _Optional[float] = ..., max_erase_area: _Optional[float] = ..., mixup: _Optional[float] = ..., cutmix: _Optional[float] = ..., num_classes: _Optional[int] = ...) -> None: ...

class DataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "backend", "scale", "mean_file", "crop_size", "mirror", "force_encoded_color", "prefetch", "shuffle", "threads", "parser_threads", "cache", "precache")
    class DB(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEVELDB: _ClassVar[DataParameter.DB]
        LMDB: _ClassVar[DataParameter.DB]
    LEVELDB: DataParameter.DB
    LMDB: DataParameter.DB
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    FORCE_ENCODED_COLOR_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    PARSER_THREADS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    PRECACHE_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    backend: DataParameter.DB
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    force_encoded_color: bool
    prefetch: int
    shuffle: bool
    threads: int
    parser_threads: int
    cache: bool
    precache: bool
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., backend: _Optional[_Union[DataParameter.DB, str]] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., force_encoded_color: _Optional[bool] = ..., prefetch: _Optional[int] = ..., shuffle: _Optional[bool] = ..., threads: _Optional[int] = ..., parser_threads: _Optional[int] = ..., cache: _Optional[bool] = ..., precache: _Optional[bool] = ...) -> None: ...

class ImageDataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "scale", "mean_file", "crop_size", "mirror", "root_folder", "ignore_label", "label_type", "on_error")
    class LabelType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[ImageDataParameter.LabelType]
        IMAGE: _ClassVar[ImageDataParameter.LabelType]
        PIXEL: _ClassVar[ImageDataParameter.LabelType]
    NONE: ImageDataParameter.LabelType
    IMAGE: ImageDataParameter.LabelType
    PIXEL: ImageDataParameter.LabelType
    class OnError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STOP: _ClassVar[ImageDataParameter.OnError]
        SKIP: _ClassVar[ImageDataParameter.OnError]
    STOP: ImageDataParameter.OnError
    SKIP: ImageDataParameter.OnError
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    LABEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    root_folder: str
    ignore_label: int
    label_type: ImageDataParameter.LabelType
    on_error: ImageDataParameter.OnError
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., shuffle: _Optional[bool] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: _Optional[bool] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., root_folder: _Optional[str] = ..., ignore_label: _Optional[int] = ..., label_type: _Optional[_Union[ImageDataParameter.LabelType, str]] = ..., on_error: _Optional[_Union[ImageDataParameter.OnError, str]] = ...) -> None: ...

class WindowDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode", "cache_images", "root_folder")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PAD_FIELD_NUMBER: _ClassVar[int]
    CROP_MODE_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    fg_threshold: float
    bg_threshold: float
    fg_fraction: float
    context_pad: int
    crop_mode: str
    cache_images: bool
    root_folder: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., fg_threshold: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., fg_fraction: _Optional[float] = ..., context_pad: _Optional[int] = ..., crop_mode: _Optional[str] = ..., cache_images: _Optional[bool] = ..., root_folder: _Optional[str] = ...) -> None: ...

class HDF5DataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "shuffle", "allow_external")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    shuffle: bool
    allow_external: bool
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., shuffle: _Optional[bool] = ..., allow_external: _Optional[bool] = ...) -> None: ...

class VolumeDataParameter(_message.Message):
    __slots__ = ("source", "root_folder", "batch_size", "shuffle", "shape", "intensity", "mirror", "shift", "prefetch")
    class Intensity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RAW: _ClassVar[VolumeDataParameter.Intensity]
        Z_SCORE: _ClassVar[VolumeDataParameter.Intensity]
        MIN_MAX: _ClassVar[VolumeDataParameter.Intensity]
    RAW: VolumeDataParameter.Intensity
    Z_SCORE: VolumeDataParameter.Intensity
    MIN_MAX: VolumeDataParameter.Intensity
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    INTENSITY_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    source: str
    root_folder: str
    batch_size: int
    shuffle: bool
    shape: _containers.RepeatedScalarFieldContainer[int]
    intensity: VolumeDataParameter.Intensity
    mirror: bool
    shift: int
    prefetch: int
    def __init__(self, source: _Optional[str] = ..., root_folder: _Optional[str] = ..., batch_size: _Optional[int] = ..., shuffle: _Optional[bool] = ..., shape: _Optional[_Iterable[int]] = ..., intensity: _Optional[_Union[VolumeDataParameter.Intensity, str]] = ..., mirror: _Optional[bool] = ..., shift: _Optional[int] = ..., prefetch: _Optional[int] = ...) -> None: ...

class AttentionParameter(_message.Message):
    __slots__ = ("scale",)
    SCALE_FIELD_NUMBER: _ClassVar[int]
    scale: float
    def __init__(self, scale: _Optional[float] = ...) -> None: ...

class PermuteParameter(_message.Message):
    __slots__ = ("order",)
    ORDER_FIELD_NUMBER: _ClassVar[int]
    order: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, order: _Optional[_Iterable[int]] = ...) -> None: ...

class NormalizeBBoxParameter(_message.Message):
    __slots__ = ("across_spatial", "scale_filler", "channel_shared", "eps")
    ACROSS_SPATIAL_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    across_spatial: bool
    scale_filler: FillerParameter
    channel_shared: bool
    eps: float
    def __init__(self, across_spatial: _Optional[bool] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: _Optional[bool] = ..., eps: _Optional[float] = ...) -> None: ...

class ShuffleChannelParameter(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: int
    def __init__(self, group: _Optional[int] = ...) -> None: ...

class InterpParameter(_message.Message):
    __slots__ = ("height", "width", "zoom_factor", "shrink_factor", "pad_beg", "pad_end")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    ZOOM_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SHRINK_FACTOR_FIELD_NUMBER: _ClassVar[int]
    PAD_BEG_FIELD_NUMBER: _ClassVar[int]
    PAD_END_FIELD_NUMBER: _ClassVar[int]
    height: int
    width: int
    zoom_factor: int
    shrink_factor: int
    pad_beg: int
    pad_end: int
    def __init__(self, height: _Optional[int] = ..., width: _Optional[int] = ..., zoom_factor: _Optional[int] = ..., shrink_factor: _Optional[int] = ..., pad_beg: _Optional[int] = ..., pad_end: _Optional[int] = ...) -> None: ...

class UpsampleParameter(_message.Message):
    __slots__ = ("scale", "scale_h", "scale_w", "pad_out_h", "pad_out_w", "upsample_h", "upsample_w")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SCALE_H_FIELD_NUMBER: _ClassVar[int]
    SCALE_W_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_H_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_W_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_H_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_W_FIELD_NUMBER: _ClassVar[int]
    scale: int
    scale_h: int
    scale_w: int
    pad_out_h: bool
    pad_out_w: bool
    upsample_h: int
    upsample_w: int
    def __init__(self, scale: _Optional[int] = ..., scale_h: _Optional[int] = ..., scale_w: _Optional[int] = ..., pad_out_h: _Optional[bool] = ..., pad_out_w: _Optional[bool] = ..., upsample_h: _Optional[int] = ..., upsample_w: _Optional[int] = ...) -> None: ...

class HDF5OutputParameter(_message.Message):
    __slots__ = ("file_name",)
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    def __init__(self, file_name: _Optional[str] = ...) -> None: ...

class MemoryDataParameter(_message.Message):
    __slots__ = ("batch_size", "channels", "height", "width")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    channels: int
    height: int
    width: int
    def __init__(self, batch_size: _Optional[int] = ..., channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class DummyDataParameter(_message.Message):
    __slots__ = ("data_filler", "shape", "num", "channels", "height", "width")
    DATA_FILLER_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    data_filler: _containers.RepeatedCompositeFieldContainer[FillerParameter]
    shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    num: _containers.RepeatedScalarFieldContainer[int]
    channels: _containers.RepeatedScalarFieldContainer[int]
    height: _containers.RepeatedScalarFieldContainer[int]
    width: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, data_filler: _Optional[_Iterable[_Union[FillerParameter, _Mapping]]] = ..., shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., num: _Optional[_Iterable[int]] = ..., channels: _Optional[_Iterable[int]] = ..., height: _Optional[_Iterable[int]] = ..., width: _Optional[_Iterable[int]] = ...) -> None: ...

class InputParameter(_message.Message):
    __slots__ = ("shape",)
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    def __init__(self, shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ...) -> None: ...

class ParameterParameter(_message.Message):
    __slots__ = ("shape",)
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ...) -> None: ...

class ConvolutionParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "stride", "dilation", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "group", "weight_filler", "bias_filler", "engine", "axis", "force_nd_im2col", "relu", "negative_slope", "conv_algorithm", "hole", "hole_h", "hole_w")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ConvolutionParameter.Engine]
        CAFFE: _ClassVar[ConvolutionParameter.Engine]
        CUDNN: _ClassVar[ConvolutionParameter.Engine]
        MKL2017: _ClassVar[ConvolutionParameter.Engine]
        MKLDNN: _ClassVar[ConvolutionParameter.Engine]
    DEFAULT: ConvolutionParameter.Engine
    CAFFE: ConvolutionParameter.Engine
    CUDNN: ConvolutionParameter.Engine
    MKL2017: ConvolutionParameter.Engine
    MKLDNN: ConvolutionParameter.Engine
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    FORCE_ND_IM2COL_FIELD_NUMBER: _ClassVar[int]
    RELU_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    CONV_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    HOLE_FIELD_NUMBER: _ClassVar[int]
    HOLE_H_FIELD_NUMBER: _ClassVar[int]
    HOLE_W_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: _containers.RepeatedScalarFieldContainer[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    stride: _containers.RepeatedScalarFieldContainer[int]
    dilation: _containers.RepeatedScalarFieldContainer[int]
    pad_h: int
    pad_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    group: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    engine: ConvolutionParameter.Engine
    axis: int
    force_nd_im2col: bool
    relu: bool
    negative_slope: float
    conv_algorithm: str
    hole: int
    hole_h: int
    hole_w: int
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., pad: _Optional[_Iterable[int]] = ..., kernel_size: _Optional[_Iterable[int]] = ..., stride: _Optional[_Iterable[int]] = ..., dilation: _Optional[_Iterable[int]] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., group: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ..., axis: _Optional[int] = ..., force_nd_im2col: _Optional[bool] = ..., relu: _Optional[bool] = ..., negative_slope: _Optional[float] = ..., conv_algorithm: _Optional[str] = ..., hole: _Optional[int] = ..., hole_h: _Optional[int] = ..., hole_w: _Optional[int] = ...) -> None: ...

class InnerProductParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose", "engine")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    axis: int
    transpose: bool
    engine: ConvolutionParameter.Engine
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., transpose: _Optional[bool] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ...) -> None: ...

class EmbedParameter(_message.Message):
    __slots__ = ("num_output", "input_dim", "bias_term", "weight_filler", "bias_filler")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    input_dim: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    def __init__(self, num_output: _Optional[int] = ..., input_dim: _Optional[int] = ..., bias_term: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class RecurrentParameter(_message.Message):
    __slots__ = ("num_output", "weight_filler", "bias_filler", "debug_info", "expose_hidden")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    EXPOSE_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    debug_info: bool
    expose_hidden: bool
    def __init__(self, num_output: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., debug_info: _Optional[bool] = ..., expose_hidden: _Optional[bool] = ...) -> None: ...

class BatchNormParameter(_message.Message):
    __slots__ = ("use_global_stats", "moving_average_fraction", "eps", "scale_bias", "scale_filler", "use_weight_bias", "bias_term", "filler", "bias_filler", "stats_batch_size", "relu", "engine", "sync")
    USE_GLOBAL_STATS_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    SCALE_BIAS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    USE_WEIGHT_BIAS_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    STATS_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RELU_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    use_global_stats: bool
    moving_average_fraction: float
    eps: float
    scale_bias: bool
    scale_filler: FillerParameter
    use_weight_bias: bool
    bias_term: bool
    filler: FillerParameter
    bias_filler: FillerParameter
    stats_batch_size: int
    relu: bool
    engine: ConvolutionParameter.Engine
    sync: bool
    def __init__(self, use_global_stats: _Optional[bool] = ..., moving_average_fraction: _Optional[float] = ..., eps: _Optional[float] = ..., scale_bias: _Optional[bool] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., use_weight_bias: _Optional[bool] = ..., bias_term: _Optional[bool] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., stats_batch_size: _Optional[int] = ..., relu: _Optional[bool] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ..., sync: _Optional[bool] = ...) -> None: ...

class ScaleParameter(_message.Message):
    __slots__ = ("axis", "num_axes", "filler", "bias_term", "bias_filler")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    axis: int
    num_axes: int
    filler: FillerParameter
    bias_term: bool
    bias_filler: FillerParameter
    def __init__(self, axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_term: _Optional[bool] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class BiasParameter(_message.Message):
    __slots__ = ("axis", "num_axes", "filler")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    axis: int
    num_axes: int
    filler: FillerParameter
    def __init__(self, axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class PReLUParameter(_message.Message):
    __slots__ = ("filler", "channel_shared")
    FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    filler: FillerParameter
    channel_shared: bool
    def __init__(self, filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: _Optional[bool] = ...) -> None: ...

class LossParameter(_message.Message):
    __slots__ = ("ignore_label", "normalization", "normalize", "label_smoothing", "pre_fixed_normalizer", "weight_by_label_freqs", "class_weighting")
    class NormalizationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FULL: _ClassVar[LossParameter.NormalizationMode]
        VALID: _ClassVar[LossParameter.NormalizationMode]
        BATCH_SIZE: _ClassVar[LossParameter.NormalizationMode]
        NONE: _ClassVar[LossParameter.NormalizationMode]
        PRE_FIXED: _ClassVar[LossParameter.NormalizationMode]
    FULL: LossParameter.NormalizationMode
    VALID: LossParameter.NormalizationMode
    BATCH_SIZE: LossParameter.NormalizationMode
    NONE: LossParameter.NormalizationMode
    PRE_FIXED: LossParameter.NormalizationMode
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    NORMALIZATION_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SMOOTHING_FIELD_NUMBER: _ClassVar[int]
    PRE_FIXED_NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BY_LABEL_FREQS_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHTING_FIELD_NUMBER: _ClassVar[int]
    ignore_label: int
    normalization: LossParameter.NormalizationMode
    normalize: bool
    label_smoothing: float
    pre_fixed_normalizer: float
    weight_by_label_freqs: bool
    class_weighting: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, ignore_label: _Optional[int] = ..., normalization: _Optional[_Union[LossParameter.NormalizationMode, str]] = ..., normalize: _Optional[bool] = ..., label_smoothing: _Optional[float] = ..., pre_fixed_normalizer: _Optional[float] = ..., weight_by_label_freqs: _Optional[bool] = ..., class_weighting: _Optional[_Iterable[float]] = ...) -> None: ...

class AccuracyParameter(_message.Message):
    __slots__ = ("top_k", "axis", "ignore_label")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    axis: int
    ignore_label: int
    def __init__(self, top_k: _Optional[int] = ..., axis: _Optional[int] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class ArgMaxParameter(_message.Message):
    __slots__ = ("out_max_val", "top_k", "axis")
    OUT_MAX_VAL_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    out_max_val: bool
    top_k: int
    axis: int
    def __init__(self, out_max_val: _Optional[bool] = ..., top_k: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class ContrastiveLossParameter(_message.Message):
    __slots__ = ("margin", "legacy_version")
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    LEGACY_VERSION_FIELD_NUMBER: _ClassVar[int]
    margin: float
    legacy_version: bool
    def __init__(self, margin: _Optional[float] = ..., legacy_version: _Optional[bool] = ...) -> None: ...

class HingeLossParameter(_message.Message):
    __slots__ = ("norm",)
    class Norm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        L1: _ClassVar[HingeLossParameter.Norm]
        L2: _ClassVar[HingeLossParameter.Norm]
    L1: HingeLossParameter.Norm
    L2: HingeLossParameter.Norm
    NORM_FIELD_NUMBER: _ClassVar[int]
    norm: HingeLossParameter.Norm
    def __init__(self, norm: _Optional[_Union[HingeLossParameter.Norm, str]] = ...) -> None: ...

class InfogainLossParameter(_message.Message):
    __slots__ = ("source", "axis")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    source: str
    axis: int
    def __init__(self, source: _Optional[str] = ..., axis: _Optional[int] = ...) -> None: ...

class ReLUParameter(_message.Message):
    __slots__ = ("negative_slope", "engine")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ReLUParameter.Engine]
        CAFFE: _ClassVar[ReLUParameter.Engine]
        CUDNN: _ClassVar[ReLUParameter.Engine]
        MKL2017: _ClassVar[ReLUParameter.Engine]
        MKLDNN: _ClassVar[ReLUParameter.Engine]
    DEFAULT: ReLUParameter.Engine
    CAFFE: ReLUParameter.Engine
    CUDNN: ReLUParameter.Engine
    MKL2017: ReLUParameter.Engine
    MKLDNN: ReLUParameter.Engine
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    negative_slope: float
    engine: ReLUParameter.Engine
    def __init__(self, negative_slope: _Optional[float] = ..., engine: _Optional[_Union[ReLUParameter.Engine, str]] = ...) -> None: ...

class ELUParameter(_message.Message):
    __slots__ = ("alpha",)
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    def __init__(self, alpha: _Optional[float] = ..., **kwargs) -> None: ...

class SigmoidParameter(_message.Message):
    __slots__ = ("engine",)
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SigmoidParameter.Engine]
        CAFFE: _ClassVar[SigmoidParameter.Engine]
        CUDNN: _ClassVar[SigmoidParameter.Engine]
        MKL2017: _ClassVar[SigmoidParameter.Engine]
        MKLDNN: _ClassVar[SigmoidParameter.Engine]
    DEFAULT: SigmoidParameter.Engine
    CAFFE: SigmoidParameter.Engine
    CUDNN: SigmoidParameter.Engine
    MKL2017: SigmoidParameter.Engine
    MKLDNN: SigmoidParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: SigmoidParameter.Engine
    def __init__(self, engine: _Optional[_Union[SigmoidParameter.Engine, str]] = ...) -> None: ...

class TanHParameter(_message.Message):
    __slots__ = ("engine",)
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[TanHParameter.Engine]
        CAFFE: _ClassVar[TanHParameter.Engine]
        CUDNN: _ClassVar[TanHParameter.Engine]
        MKL2017: _ClassVar[TanHParameter.Engine]
        MKLDNN: _ClassVar[TanHParameter.Engine]
    DEFAULT: TanHParameter.Engine
    CAFFE: TanHParameter.Engine
    CUDNN: TanHParameter.Engine
    MKL2017: TanHParameter.Engine
    MKLDNN: TanHParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: TanHParameter.Engine
    def __init__(self, engine: _Optional[_Union[TanHParameter.Engine, str]] = ...) -> None: ...

class SwishParameter(_message.Message):
    __slots__ = ("beta",)
    BETA_FIELD_NUMBER: _ClassVar[int]
    beta: float
    def __init__(self, beta: _Optional[float] = ...) -> None: ...

class ThresholdParameter(_message.Message):
    __slots__ = ("threshold",)
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    threshold: float
    def __init__(self, threshold: _Optional[float] = ...) -> None: ...

class ClipParameter(_message.Message):
    __slots__ = ("min", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class DropoutParameter(_message.Message):
    __slots__ = ("dropout_ratio", "sample_weights_test", "scale_train")
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_WEIGHTS_TEST_FIELD_NUMBER: _ClassVar[int]
    SCALE_TRAIN_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    sample_weights_test: bool
    scale_train: bool
    def __init__(self, dropout_ratio: _Optional[float] = ..., sample_weights_test: _Optional[bool] = ..., scale_train: _Optional[bool] = ...) -> None: ...

class ExpParameter(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class LogParameter(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class PowerParameter(_message.Message):
    __slots__ = ("power", "scale", "shift")
    POWER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    power: float
    scale: float
    shift: float
    def __init__(self, power: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class SoftmaxParameter(_message.Message):
    __slots__ = ("engine", "axis")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SoftmaxParameter.Engine]
        CAFFE: _ClassVar[SoftmaxParameter.Engine]
        CUDNN: _ClassVar[SoftmaxParameter.Engine]
        MKL2017: _ClassVar[SoftmaxParameter.Engine]
        MKLDNN: _ClassVar[SoftmaxParameter.Engine]
    DEFAULT: SoftmaxParameter.Engine
    CAFFE: SoftmaxParameter.Engine
    CUDNN: SoftmaxParameter.Engine
    MKL2017: SoftmaxParameter.Engine
    MKLDNN: SoftmaxParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    engine: SoftmaxParameter.Engine
    axis: int
    def __init__(self, engine: _Optional[_Union[SoftmaxParameter.Engine, str]] = ..., axis: _Optional[int] = ...) -> None: ...

class PoolingParameter(_message.Message):
    __slots__ = ("pool", "pad", "pad_h", "pad_w", "kernel_size", "kernel_h", "kernel_w", "stride", "stride_h", "stride_w", "engine", "global_pooling", "round_mode", "ceil_mode", "torch_pooling", "avg_include_pad")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[PoolingParameter.PoolMethod]
        AVE: _ClassVar[PoolingParameter.PoolMethod]
        STOCHASTIC: _ClassVar[PoolingParameter.PoolMethod]
    MAX: PoolingParameter.PoolMethod
    AVE: PoolingParameter.PoolMethod
    STOCHASTIC: PoolingParameter.PoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[PoolingParameter.Engine]
        CAFFE: _ClassVar[PoolingParameter.Engine]
        CUDNN: _ClassVar[PoolingParameter.Engine]
        MKL2017: _ClassVar[PoolingParameter.Engine]
        MKLDNN: _ClassVar[PoolingParameter.Engine]
    DEFAULT: PoolingParameter.Engine
    CAFFE: PoolingParameter.Engine
    CUDNN: PoolingParameter.Engine
    MKL2017: PoolingParameter.Engine
    MKLDNN: PoolingParameter.Engine
    class RoundMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CEIL: _ClassVar[PoolingParameter.RoundMode]
        FLOOR: _ClassVar[PoolingParameter.RoundMode]
    CEIL: PoolingParameter.RoundMode
    FLOOR: PoolingParameter.RoundMode
    POOL_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_POOLING_FIELD_NUMBER: _ClassVar[int]
    ROUND_MODE_FIELD_NUMBER: _ClassVar[int]
    CEIL_MODE_FIELD_NUMBER: _ClassVar[int]
    TORCH_POOLING_FIELD_NUMBER: _ClassVar[int]
    AVG_INCLUDE_PAD_FIELD_NUMBER: _ClassVar[int]
    pool: PoolingParameter.PoolMethod
    pad: int
    pad_h: int
    pad_w: int
    kernel_size: int
    kernel_h: int
    kernel_w: int
    stride: int
    stride_h: int
    stride_w: int
    engine: PoolingParameter.Engine
    global_pooling: bool
    round_mode: PoolingParameter.RoundMode
    ceil_mode: bool
    torch_pooling: bool
    avg_include_pad: bool
    def __init__(self, pool: _Optional[_Union[PoolingParameter.PoolMethod, str]] = ..., pad: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_size: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., engine: _Optional[_Union[PoolingParameter.Engine, str]] = ..., global_pooling: _Optional[bool] = ..., round_mode: _Optional[_Union[PoolingParameter.RoundMode, str]] = ..., ceil_mode: _Optional[bool] = ..., torch_pooling: _Optional[bool] = ..., avg_include_pad: _Optional[bool] = ...) -> None: ...

class SPPParameter(_message.Message):
    __slots__ = ("pyramid_height", "pool", "engine")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[SPPParameter.PoolMethod]
        AVE: _ClassVar[SPPParameter.PoolMethod]
        STOCHASTIC: _ClassVar[SPPParameter.PoolMethod]
    MAX: SPPParameter.PoolMethod
    AVE: SPPParameter.PoolMethod
    STOCHASTIC: SPPParameter.PoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SPPParameter.Engine]
        CAFFE: _ClassVar[SPPParameter.Engine]
        CUDNN: _ClassVar[SPPParameter.Engine]
        MKL2017: _ClassVar[SPPParameter.Engine]
        MKLDNN: _ClassVar[SPPParameter.Engine]
    DEFAULT: SPPParameter.Engine
    CAFFE: SPPParameter.Engine
    CUDNN: SPPParameter.Engine
    MKL2017: SPPParameter.Engine
    MKLDNN: SPPParameter.Engine
    PYRAMID_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    pyramid_height: int
    pool: SPPParameter.PoolMethod
    engine: SPPParameter.Engine
    def __init__(self, pyramid_height: _Optional[int] = ..., pool: _Optional[_Union[SPPParameter.PoolMethod, str]] = ..., engine: _Optional[_Union[SPPParameter.Engine, str]] = ...) -> None: ...

class LRNParameter(_message.Message):
    __slots__ = ("local_size", "alpha", "beta", "norm_region", "k", "engine")
    class NormRegion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACROSS_CHANNELS: _ClassVar[LRNParameter.NormRegion]
        WITHIN_CHANNEL: _ClassVar[LRNParameter.NormRegion]
    ACROSS_CHANNELS: LRNParameter.NormRegion
    WITHIN_CHANNEL: LRNParameter.NormRegion
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[LRNParameter.Engine]
        CAFFE: _ClassVar[LRNParameter.Engine]
        CUDNN: _ClassVar[LRNParameter.Engine]
        MKL2017: _ClassVar[LRNParameter.Engine]
        MKLDNN: _ClassVar[LRNParameter.Engine]
    DEFAULT: LRNParameter.Engine
    CAFFE: LRNParameter.Engine
    CUDNN: LRNParameter.Engine
    MKL2017: LRNParameter.Engine
    MKLDNN: LRNParameter.Engine
    LOCAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    NORM_REGION_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    local_size: int
    alpha: float
    beta: float
    norm_region: LRNParameter.NormRegion
    k: float
    engine: LRNParameter.Engine
    def __init__(self, local_size: _Optional[int] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., norm_region: _Optional[_Union[LRNParameter.NormRegion, str]] = ..., k: _Optional[float] = ..., engine: _Optional[_Union[LRNParameter.Engine, str]] = ...) -> None: ...

class MVNParameter(_message.Message):
    __slots__ = ("normalize_variance", "across_channels", "eps")
    NORMALIZE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    ACROSS_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    normalize_variance: bool
    across_channels: bool
    eps: float
    def __init__(self, normalize_variance: _Optional[bool] = ..., across_channels: _Optional[bool] = ..., eps: _Optional[float] = ...) -> None: ...

class EltwiseParameter(_message.Message):
    __slots__ = ("operation", "coeff", "stable_prod_grad", "engine")
    class EltwiseOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PROD: _ClassVar[EltwiseParameter.EltwiseOp]
        SUM: _ClassVar[EltwiseParameter.EltwiseOp]
        MAX: _ClassVar[EltwiseParameter.EltwiseOp]
    PROD: EltwiseParameter.EltwiseOp
    SUM: EltwiseParameter.EltwiseOp
    MAX: EltwiseParameter.EltwiseOp
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    STABLE_PROD_GRAD_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    operation: EltwiseParameter.EltwiseOp
    coeff: _containers.RepeatedScalarFieldContainer[float]
    stable_prod_grad: bool
    engine: ConvolutionParameter.Engine
    def __init__(self, operation: _Optional[_Union[EltwiseParameter.EltwiseOp, str]] = ..., coeff: _Optional[_Iterable[float]] = ..., stable_prod_grad: _Optional[bool] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ...) -> None: ...

class ReductionParameter(_message.Message):
    __slots__ = ("operation", "axis", "coeff")
    class ReductionOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SUM: _ClassVar[ReductionParameter.ReductionOp]
        ASUM: _ClassVar[ReductionParameter.ReductionOp]
        SUMSQ: _ClassVar[ReductionParameter.ReductionOp]
        MEAN: _ClassVar[ReductionParameter.ReductionOp]
    SUM: ReductionParameter.ReductionOp
    ASUM: ReductionParameter.ReductionOp
    SUMSQ: ReductionParameter.ReductionOp
    MEAN: ReductionParameter.ReductionOp
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    operation: ReductionParameter.ReductionOp
    axis: int
    coeff: float
    def __init__(self, operation: _Optional[_Union[ReductionParameter.ReductionOp, str]] = ..., axis: _Optional[int] = ..., coeff: _Optional[float] = ...) -> None: ...

class ConcatParameter(_message.Message):
    __slots__ = ("axis", "concat_dim", "engine")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    CONCAT_DIM_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    axis: int
    concat_dim: int
    engine: ConvolutionParameter.Engine
    def __init__(self, axis: _Optional[int] = ..., concat_dim: _Optional[int] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ...) -> None: ...

class SliceParameter(_message.Message):
    __slots__ = ("axis", "slice_point", "slice_dim")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    SLICE_POINT_FIELD_NUMBER: _ClassVar[int]
    SLICE_DIM_FIELD_NUMBER: _ClassVar[int]
    axis: int
    slice_point: _containers.RepeatedScalarFieldContainer[int]
    slice_dim: int
    def __init__(self, axis: _Optional[int] = ..., slice_point: _Optional[_Iterable[int]] = ..., slice_dim: _Optional[int] = ...) -> None: ...

class CropParameter(_message.Message):
    __slots__ = ("axis", "offset")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    axis: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class CropCenterParameter(_message.Message):
    __slots__ = ("crop_size",)
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    crop_size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, crop_size: _Optional[_Iterable[int]] = ...) -> None: ...

class FlattenParameter(_message.Message):
    __slots__ = ("axis", "end_axis")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    END_AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    end_axis: int
    def __init__(self, axis: _Optional[int] = ..., end_axis: _Optional[int] = ...) -> None: ...

class ReshapeParameter(_message.Message):
    __slots__ = ("shape", "axis", "num_axes")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    axis: int
    num_axes: int
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ..., axis: _Optional[int] = ..., num_axes: _Optional[int] = ...) -> None: ...

class TileParameter(_message.Message):
    __slots__ = ("axis", "tiles")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    axis: int
    tiles: int
    def __init__(self, axis: _Optional[int] = ..., tiles: _Optional[int] = ...) -> None: ...

class PythonParameter(_message.Message):
    __slots__ = ("module", "layer", "param_str", "share_in_parallel")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    PARAM_STR_FIELD_NUMBER: _ClassVar[int]
    SHARE_IN_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    module: str
    layer: str
    param_str: str
    share_in_parallel: bool
    def __init__(self, module: _Optional[str] = ..., layer: _Optional[str] = ..., param_str: _Optional[str] = ..., share_in_parallel: _Optional[bool] = ...) -> None: ...

class NormalizedBBox(_message.Message):
    __slots__ = ("xmin", "ymin", "xmax", "ymax", "label", "difficult", "score", "size")
    XMIN_FIELD_NUMBER: _ClassVar[int]
    YMIN_FIELD_NUMBER: _ClassVar[int]
    XMAX_FIELD_NUMBER: _ClassVar[int]
    YMAX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DIFFICULT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    label: int
    difficult: bool
    score: float
    size: float
    def __init__(self, xmin: _Optional[float] = ..., ymin: _Optional[float] = ..., xmax: _Optional[float] = ..., ymax: _Optional[float] = ..., label: _Optional[int] = ..., difficult: _Optional[bool] = ..., score: _Optional[float] = ..., size: _Optional[float] = ...) -> None: ...

class LabelMapItem(_message.Message):
    __slots__ = ("name", "label", "display_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: int
    display_name: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[int] = ..., display_name: _Optional[str] = ...) -> None: ...

class LabelMap(_message.Message):
    __slots__ = ("item",)
    ITEM_FIELD_NUMBER: _ClassVar[int]
    item: _containers.RepeatedCompositeFieldContainer[LabelMapItem]
    def __init__(self, item: _Optional[_Iterable[_Union[LabelMapItem, _Mapping]]] = ...) -> None: ...

class Annotation(_message.Message):
    __slots__ = ("instance_id", "bbox")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    BBOX_FIELD_NUMBER: _ClassVar[int]
    instance_id: int
    bbox: NormalizedBBox
    def __init__(self, instance_id: _Optional[int] = ..., bbox: _Optional[_Union[NormalizedBBox, _Mapping]] = ...) -> None: ...

class AnnotationGroup(_message.Message):
    __slots__ = ("group_label", "annotation")
    GROUP_LABEL_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    group_label: int
    annotation: _containers.RepeatedCompositeFieldContainer[Annotation]
    def __init__(self, group_label: _Optional[int] = ..., annotation: _Optional[_Iterable[_Union[Annotation, _Mapping]]] = ...) -> None: ...

class AnnotatedDatum(_message.Message):
    __slots__ = ("datum", "type", "annotation_group")
    class AnnotationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BBOX: _ClassVar[AnnotatedDatum.AnnotationType]
    BBOX: AnnotatedDatum.AnnotationType
    DATUM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_GROUP_FIELD_NUMBER: _ClassVar[int]
    datum: Datum
    type: AnnotatedDatum.AnnotationType
    annotation_group: _containers.RepeatedCompositeFieldContainer[AnnotationGroup]
    def __init__(self, datum: _Optional[_Union[Datum, _Mapping]] = ..., type: _Optional[_Union[AnnotatedDatum.AnnotationType, str]] = ..., annotation_group: _Optional[_Iterable[_Union[AnnotationGroup, _Mapping]]] = ...) -> None: ...

class Sampler(_message.Message):
    __slots__ = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio")
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    min_scale: float
    max_scale: float
    min_aspect_ratio: float
    max_aspect_ratio: float
    def __init__(self, min_scale: _Optional[float] = ..., max_scale: _Optional[float] = ..., min_aspect_ratio: _Optional[float] = ..., max_aspect_ratio: _Optional[float] = ...) -> None: ...

class SampleConstraint(_message.Message):
    __slots__ = ("min_jaccard_overlap", "max_jaccard_overlap", "min_sample_coverage", "max_sample_coverage", "min_object_coverage", "max_object_coverage")
    MIN_JACCARD_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MAX_JACCARD_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MIN_SAMPLE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MIN_OBJECT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MAX_OBJECT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    min_jaccard_overlap: float
    max_jaccard_overlap: float
    min_sample_coverage: float
    max_sample_coverage: float
    min_object_coverage: float
    max_object_coverage: float
    def __init__(self, min_jaccard_overlap: _Optional[float] = ..., max_jaccard_overlap: _Optional[float] = ..., min_sample_coverage: _Optional[float] = ..., max_sample_coverage: _Optional[float] = ..., min_object_coverage: _Optional[float] = ..., max_object_coverage: _Optional[float] = ...) -> None: ...

class BatchSampler(_message.Message):
    __slots__ = ("use_original_image", "sampler", "sample_constraint", "max_sample", "max_trials")
    USE_ORIGINAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    MAX_TRIALS_FIELD_NUMBER: _ClassVar[int]
    use_original_image: bool
    sampler: Sampler
    sample_constraint: SampleConstraint
    max_sample: int
    max_trials: int
    def __init__(self, use_original_image: _Optional[bool] = ..., sampler: _Optional[_Union[Sampler, _Mapping]] = ..., sample_constraint: _Optional[_Union[SampleConstraint, _Mapping]] = ..., max_sample: _Optional[int] = ..., max_trials: _Optional[int] = ...) -> None: ...

class AnnotatedDataParameter(_message.Message):
    __slots__ = ("batch_sampler", "label_map_file", "anno_type")
    BATCH_SAMPLER_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    ANNO_TYPE_FIELD_NUMBER: _ClassVar[int]
    batch_sampler: _containers.RepeatedCompositeFieldContainer[BatchSampler]
    label_map_file: str
    anno_type: AnnotatedDatum.AnnotationType
    def __init__(self, batch_sampler: _Optional[_Iterable[_Union[BatchSampler, _Mapping]]] = ..., label_map_file: _Optional[str] = ..., anno_type: _Optional[_Union[AnnotatedDatum.AnnotationType, str]] = ...) -> None: ...

class EmitConstraint(_message.Message):
    __slots__ = ("emit_type", "emit_overlap")
    class EmitType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CENTER: _ClassVar[EmitConstraint.EmitType]
        MIN_OVERLAP: _ClassVar[EmitConstraint.EmitType]
    CENTER: EmitConstraint.EmitType
    MIN_OVERLAP: EmitConstraint.EmitType
    EMIT_TYPE_FIELD_NUMBER: _ClassVar[int]
    EMIT_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    emit_type: EmitConstraint.EmitType
    emit_overlap: float
    def __init__(self, emit_type: _Optional[_Union[EmitConstraint.EmitType, str]] = ..., emit_overlap: _Optional[float] = ...) -> None: ...

class ResizeParameter(_message.Message):
    __slots__ = ("prob", "resize_mode", "height", "width", "height_scale", "width_scale", "pad_mode", "pad_value", "interp_mode")
    class Resize_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WARP: _ClassVar[ResizeParameter.Resize_mode]
        FIT_SMALL_SIZE: _ClassVar[ResizeParameter.Resize_mode]
        FIT_LARGE_SIZE_AND_PAD: _ClassVar[ResizeParameter.Resize_mode]
    WARP: ResizeParameter.Resize_mode
    FIT_SMALL_SIZE: ResizeParameter.Resize_mode
    FIT_LARGE_SIZE_AND_PAD: ResizeParameter.Resize_mode
    class Pad_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONSTANT: _ClassVar[ResizeParameter.Pad_mode]
        MIRRORED: _ClassVar[ResizeParameter.Pad_mode]
        REPEAT_NEAREST: _ClassVar[ResizeParameter.Pad_mode]
    CONSTANT: ResizeParameter.Pad_mode
    MIRRORED: ResizeParameter.Pad_mode
    REPEAT_NEAREST: ResizeParameter.Pad_mode
    class Interp_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LINEAR: _ClassVar[ResizeParameter.Interp_mode]
        AREA: _ClassVar[ResizeParameter.Interp_mode]
        NEAREST: _ClassVar[ResizeParameter.Interp_mode]
        CUBIC: _ClassVar[ResizeParameter.Interp_mode]
        LANCZOS4: _ClassVar[ResizeParameter.Interp_mode]
    LINEAR: ResizeParameter.Interp_mode
    AREA: ResizeParameter.Interp_mode
    NEAREST: ResizeParameter.Interp_mode
    CUBIC: ResizeParameter.Interp_mode
    LANCZOS4: ResizeParameter.Interp_mode
    PROB_FIELD_NUMBER: _ClassVar[int]
    RESIZE_MODE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_SCALE_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_VALUE_FIELD_NUMBER: _ClassVar[int]
    INTERP_MODE_FIELD_NUMBER: _ClassVar[int]
    prob: float
    resize_mode: ResizeParameter.Resize_mode
    height: int
    width: int
    height_scale: int
    width_scale: int
    pad_mode: ResizeParameter.Pad_mode
    pad_value: _containers.RepeatedScalarFieldContainer[float]
    interp_mode: _containers.RepeatedScalarFieldContainer[ResizeParameter.Interp_mode]
    def __init__(self, prob: _Optional[float] = ..., resize_mode: _Optional[_Union[ResizeParameter.Resize_mode, str]] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., height_scale: _Optional[int] = ..., width_scale: _Optional[int] = ..., pad_mode: _Optional[_Union[ResizeParameter.Pad_mode, str]] = ..., pad_value: _Optional[_Iterable[float]] = ..., interp_mode: _Optional[_Iterable[_Union[ResizeParameter.Interp_mode, str]]] = ...) -> None: ...

class SaltPepperParameter(_message.Message):
    __slots__ = ("fraction", "value")
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    fraction: float
    value: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, fraction: _Optional[float] = ..., value: _Optional[_Iterable[float]] = ...) -> None: ...

class NoiseParameter(_message.Message):
    __slots__ = ("prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode", "saltpepper", "saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab")
    PROB_FIELD_NUMBER: _ClassVar[int]
    HIST_EQ_FIELD_NUMBER: _ClassVar[int]
    INVERSE_FIELD_NUMBER: _ClassVar[int]
    DECOLORIZE_FIELD_NUMBER: _ClassVar[int]
    GAUSS_BLUR_FIELD_NUMBER: _ClassVar[int]
    JPEG_FIELD_NUMBER: _ClassVar[int]
    POSTERIZE_FIELD_NUMBER: _ClassVar[int]
    ERODE_FIELD_NUMBER: _ClassVar[int]
    SALTPEPPER_FIELD_NUMBER: _ClassVar[int]
    SALTPEPPER_PARAM_FIELD_NUMBER: _ClassVar[int]
    CLAHE_FIELD_NUMBER: _ClassVar[int]
    CONVERT_TO_HSV_FIELD_NUMBER: _ClassVar[int]
    CONVERT_TO_LAB_FIELD_NUMBER: _ClassVar[int]
    prob: float
    hist_eq: bool
    inverse: bool
    decolorize: bool
    gauss_blur: bool
    jpeg: float
    posterize: bool
    erode: bool
    saltpepper: bool
    saltpepper_param: SaltPepperParameter
    clahe: bool
    convert_to_hsv: bool
    convert_to_lab: bool
    def __init__(self, prob: _Optional[float] = ..., hist_eq: _Optional[bool] = ..., inverse: _Optional[bool] = ..., decolorize: _Optional[bool] = ..., gauss_blur: _Optional[bool] = ..., jpeg: _Optional[float] = ..., posterize: _Optional[bool] = ..., erode: _Optional[bool] = ..., saltpepper: _Optional[bool] = ..., saltpepper_param: _Optional[_Union[SaltPepperParameter, _Mapping]] = ..., clahe: _Optional[bool] = ..., convert_to_hsv: _Optional[bool] = ..., convert_to_lab: _Optional[bool] = ...) -> None: ...

class DistortionParameter(_message.Message):
    __slots__ = ("brightness_prob", "brightness_delta", "contrast_prob", "contrast_lower", "contrast_upper", "hue_prob", "hue_delta", "saturation_prob", "saturation_lower", "saturation_upper", "random_order_prob")
    BRIGHTNESS_PROB_FIELD_NUMBER: _ClassVar[int]
    BRIGHTNESS_DELTA_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_PROB_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_LOWER_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_UPPER_FIELD_NUMBER: _ClassVar[int]
    HUE_PROB_FIELD_NUMBER: _ClassVar[int]
    HUE_DELTA_FIELD_NUMBER: _ClassVar[int]
    SATURATION_PROB_FIELD_NUMBER: _ClassVar[int]
    SATURATION_LOWER_FIELD_NUMBER: _ClassVar[int]
    SATURATION_UPPER_FIELD_NUMBER: _ClassVar[int]
    RANDOM_ORDER_PROB_FIELD_NUMBER: _ClassVar[int]
    brightness_prob: float
    brightness_delta: float
    contrast_prob: float
    contrast_lower: float
    contrast_upper: float
    hue_prob: float
    hue_delta: float
    saturation_prob: float
    saturation_lower: float
    saturation_upper: float
    random_order_prob: float
    def __init__(self, brightness_prob: _Optional[float] = ..., brightness_delta: _Optional[float] = ..., contrast_prob: _Optional[float] = ..., contrast_lower: _Optional[float] = ..., contrast_upper: _Optional[float] = ..., hue_prob: _Optional[float] = ..., hue_delta: _Optional[float] = ..., saturation_prob: _Optional[float] = ..., saturation_lower: _Optional[float] = ..., saturation_upper: _Optional[float] = ..., random_order_prob: _Optional[float] = ...) -> None: ...

class ExpansionParameter(_message.Message):
    __slots__ = ("prob", "max_expand_ratio")
    PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_EXPAND_RATIO_FIELD_NUMBER: _ClassVar[int]
    prob: float
    max_expand_ratio: float
    def __init__(self, prob: _Optional[float] = ..., max_expand_ratio: _Optional[float] = ...) -> None: ...

class RandomResizeParameter(_message.Message):
    __slots__ = ("min_size", "max_size", "resize_param")
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    min_size: int
    max_size: int
    resize_param: ResizeParameter
    def __init__(self, min_size: _Optional[int] = ..., max_size: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class RandomAspectRatioParameter(_message.Message):
    __slots__ = ("min_area_ratio", "max_area_ratio", "aspect_ratio_change", "max_attempt", "resize_param")
    MIN_AREA_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_AREA_RATIO_FIELD_NUMBER: _ClassVar[int]
    ASPECT_RATIO_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    min_area_ratio: float
    max_area_ratio: float
    aspect_ratio_change: float
    max_attempt: int
    resize_param: ResizeParameter
    def __init__(self, min_area_ratio: _Optional[float] = ..., max_area_ratio: _Optional[float] = ..., aspect_ratio_change: _Optional[float] = ..., max_attempt: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class PriorBoxParameter(_message.Message):
    __slots__ = ("min_size", "max_size", "aspect_ratio", "flip", "clip", "variance", "img_size", "img_h", "img_w", "step", "step_h", "step_w", "offset", "fixed_size", "fixed_ratio", "density", "fixed_sizes", "fixed_ratios", "densitys", "densities")
    class CodeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CORNER: _ClassVar[PriorBoxParameter.CodeType]
        CENTER_SIZE: _ClassVar[PriorBoxParameter.CodeType]
        CORNER_SIZE: _ClassVar[PriorBoxParameter.CodeType]
    CORNER: PriorBoxParameter.CodeType
    CENTER_SIZE: PriorBoxParameter.CodeType
    CORNER_SIZE: PriorBoxParameter.CodeType
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    FLIP_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_H_FIELD_NUMBER: _ClassVar[int]
    IMG_W_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_H_FIELD_NUMBER: _ClassVar[int]
    STEP_W_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZE_FIELD_NUMBER: _ClassVar[int]
    FIXED_RATIO_FIELD_NUMBER: _ClassVar[int]
    DENSITY_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZES_FIELD_NUMBER: _ClassVar[int]
    FIXED_RATIOS_FIELD_NUMBER: _ClassVar[int]
    DENSITYS_FIELD_NUMBER: _ClassVar[int]
    DENSITIES_FIELD_NUMBER: _ClassVar[int]
    min_size: _containers.RepeatedScalarFieldContainer[float]
    max_size: _containers.RepeatedScalarFieldContainer[float]
    aspect_ratio: _containers.RepeatedScalarFieldContainer[float]
    flip: bool
    clip: bool
    variance: _containers.RepeatedScalarFieldContainer[float]
    img_size: int
    img_h: int
    img_w: int
    step: float
    step_h: float
    step_w: float
    offset: float
    fixed_size: _containers.RepeatedScalarFieldContainer[float]
    fixed_ratio: _containers.RepeatedScalarFieldContainer[float]
    density: _containers.RepeatedScalarFieldContainer[int]
    fixed_sizes: _containers.RepeatedScalarFieldContainer[float]
    fixed_ratios: _containers.RepeatedScalarFieldContainer[float]
    densitys: _containers.RepeatedScalarFieldContainer[int]
    densities: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, min_size: _Optional[_Iterable[float]] = ..., max_size: _Optional[_Iterable[float]] = ..., aspect_ratio: _Optional[_Iterable[float]] = ..., flip: _Optional[bool] = ..., clip: _Optional[bool] = ..., variance: _Optional[_Iterable[float]] = ..., img_size: _Optional[int] = ..., img_h: _Optional[int] = ..., img_w: _Optional[int] = ..., step: _Optional[float] = ..., step_h: _Optional[float] = ..., step_w: _Optional[float] = ..., offset: _Optional[float] = ..., fixed_size: _Optional[_Iterable[float]] = ..., fixed_ratio: _Optional[_Iterable[float]] = ..., density: _Optional[_Iterable[int]] = ..., fixed_sizes: _Optional[_Iterable[float]] = ..., fixed_ratios: _Optional[_Iterable[float]] = ..., densitys: _Optional[_Iterable[int]] = ..., densities: _Optional[_Iterable[int]] = ...) -> None: ...

class NonMaximumSuppressionParameter(_message.Message):
    __slots__ = ("nms_threshold", "top_k", "eta")
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    nms_threshold: float
    top_k: int
    eta: float
    def __init__(self, nms_threshold: _Optional[float] = ..., top_k: _Optional[int] = ..., eta: _Optional[float] = ...) -> None: ...

class SaveOutputParameter(_message.Message):
    __slots__ = ("output_directory", "output_name_prefix", "output_format", "label_map_file", "name_size_file", "num_test_image", "resize_param")
    OUTPUT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    NAME_SIZE_FILE_FIELD_NUMBER: _ClassVar[int]
    NUM_TEST_IMAGE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    output_directory: str
    output_name_prefix: str
    output_format: str
    label_map_file: str
    name_size_file: str
    num_test_image: int
    resize_param: ResizeParameter
    def __init__(self, output_directory: _Optional[str] = ..., output_name_prefix: _Optional[str] = ..., output_format: _Optional[str] = ..., label_map_file: _Optional[str] = ..., name_size_file: _Optional[str] = ..., num_test_image: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class DetectionOutputParameter(_message.Message):
    __slots__ = ("num_classes", "share_location", "background_label_id", "nms_param", "save_output_param", "code_type", "variance_encoded_in_target", "keep_top_k", "confidence_threshold", "visualize", "visualize_threshold", "save_file")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SHARE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SAVE_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_ENCODED_IN_TARGET_FIELD_NUMBER: _ClassVar[int]
    KEEP_TOP_K_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SAVE_FILE_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    share_location: bool
    background_label_id: int
    nms_param: NonMaximumSuppressionParameter
    save_output_param: SaveOutputParameter
    code_type: PriorBoxParameter.CodeType
    variance_encoded_in_target: bool
    keep_top_k: int
    confidence_threshold: float
    visualize: bool
    visualize_threshold: float
    save_file: str
    def __init__(self, num_classes: _Optional[int] = ..., share_location: _Optional[bool] = ..., background_label_id: _Optional[int] = ..., nms_param: _Optional[_Union[NonMaximumSuppressionParameter, _Mapping]] = ..., save_output_param: _Optional[_Union[SaveOutputParameter, _Mapping]] = ..., code_type: _Optional[_Union[PriorBoxParameter.CodeType, str]] = ..., variance_encoded_in_target: _Optional[bool] = ..., keep_top_k: _Optional[int] = ..., confidence_threshold: _Optional[float] = ..., visualize: _Optional[bool] = ..., visualize_threshold: _Optional[float] = ..., save_file: _Optional[str] = ...) -> None: ...

class DetectionEvaluateParameter(_message.Message):
    __slots__ = ("num_classes", "background_label_id", "overlap_threshold", "evaluate_difficult_gt", "name_size_file", "resize_param")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    NAME_SIZE_FILE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    background_label_id: int
    overlap_threshold: float
    evaluate_difficult_gt: bool
    name_size_file: str
    resize_param: ResizeParameter
    def __init__(self, num_classes: _Optional[int] = ..., background_label_id: _Optional[int] = ..., overlap_threshold: _Optional[float] = ..., evaluate_difficult_gt: _Optional[bool] = ..., name_size_file: _Optional[str] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class MultiBoxLossParameter(_message.Message):
    __slots__ = ("loc_loss_type", "conf_loss_type", "loc_weight", "num_classes", "share_location", "match_type", "overlap_threshold", "use_prior_for_matching", "background_label_id", "use_difficult_gt", "do_neg_mining", "neg_pos_ratio", "neg_overlap", "code_type", "encode_variance_in_target", "map_object_to_agnostic", "ignore_cross_boundary_bbox", "bp_inside", "mining_type", "nms_param", "sample_size", "use_prior_for_nms")
    class LocLossType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        L2: _ClassVar[MultiBoxLossParameter.LocLossType]
        SMOOTH_L1: _ClassVar[MultiBoxLossParameter.LocLossType]
    L2: MultiBoxLossParameter.LocLossType
    SMOOTH_L1: MultiBoxLossParameter.LocLossType
    class ConfLossType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOFTMAX: _ClassVar[MultiBoxLossParameter.ConfLossType]
        LOGISTIC: _ClassVar[MultiBoxLossParameter.ConfLossType]
    SOFTMAX: MultiBoxLossParameter.ConfLossType
    LOGISTIC: MultiBoxLossParameter.ConfLossType
    class MatchType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BIPARTITE: _ClassVar[MultiBoxLossParameter.MatchType]
        PER_PREDICTION: _ClassVar[MultiBoxLossParameter.MatchType]
    BIPARTITE: MultiBoxLossParameter.MatchType
    PER_PREDICTION: MultiBoxLossParameter.MatchType
    class MiningType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[MultiBoxLossParameter.MiningType]
        MAX_NEGATIVE: _ClassVar[MultiBoxLossParameter.MiningType]
        HARD_EXAMPLE: _ClassVar[MultiBoxLossParameter.MiningType]
    NONE: MultiBoxLossParameter.MiningType
    MAX_NEGATIVE: MultiBoxLossParameter.MiningType
    HARD_EXAMPLE: MultiBoxLossParameter.MiningType
    LOC_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONF_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    LOC_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SHARE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    MATCH_TYPE_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    USE_PRIOR_FOR_MATCHING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    USE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    DO_NEG_MINING_FIELD_NUMBER: _ClassVar[int]
    NEG_POS_RATIO_FIELD_NUMBER: _ClassVar[int]
    NEG_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_VARIANCE_IN_TARGET_FIELD_NUMBER: _ClassVar[int]
    MAP_OBJECT_TO_AGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CROSS_BOUNDARY_BBOX_FIELD_NUMBER: _ClassVar[int]
    BP_INSIDE_FIELD_NUMBER: _ClassVar[int]
    MINING_TYPE_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    USE_PRIOR_FOR_NMS_FIELD_NUMBER: _ClassVar[int]
    loc_loss_type: MultiBoxLossParameter.LocLossType
    conf_loss_type: MultiBoxLossParameter.ConfLossType
    loc_weight: float
    num_classes: int
    share_location: bool
    match_type: MultiBoxLossParameter.MatchType
    overlap_threshold: float
    use_prior_for_matching: bool
    background_label_id: int
    use_difficult_gt: bool
    do_neg_mining: bool
    neg_pos_ratio: float
    neg_overlap: float
    code_type: PriorBoxParameter.CodeType
    encode_variance_in_target: bool
    map_object_to_agnostic: bool
    ignore_cross_boundary_bbox: bool
    bp_inside: bool
    mining_type: MultiBoxLossParameter.MiningType
    nms_param: NonMaximumSuppressionParameter
    sample_size: int
    use_prior_for_nms: bool
    def __init__(self, loc_loss_type: _Optional[_Union[MultiBoxLossParameter.LocLossType, str]] = ..., conf_loss_type: _Optional[_Union[MultiBoxLossParameter.ConfLossType, str]] = ..., loc_weight: _Optional[float] = ..., num_classes: _Optional[int] = ..., share_location: _Optional[bool] = ..., match_type: _Optional[_Union[MultiBoxLossParameter.MatchType, str]] = ..., overlap_threshold: _Optional[float] = ..., use_prior_for_matching: _Optional[bool] = ..., background_label_id: _Optional[int] = ..., use_difficult_gt: _Optional[bool] = ..., do_neg_mining: _Optional[bool] = ..., neg_pos_ratio: _Optional[float] = ..., neg_overlap: _Optional[float] = ..., code_type: _Optional[_Union[PriorBoxParameter.CodeType, str]] = ..., encode_variance_in_target: _Optional[bool] = ..., map_object_to_agnostic: _Optional[bool] = ..., ignore_cross_boundary_bbox: _Optional[bool] = ..., bp_inside: _Optional[bool] = ..., mining_type: _Optional[_Union[MultiBoxLossParameter.MiningType, str]] = ..., nms_param: _Optional[_Union[NonMaximumSuppressionParameter, _Mapping]] = ..., sample_size: _Optional[int] = ..., use_prior_for_nms: _Optional[bool] = ...) -> None: ...

class VideoDataParameter(_message.Message):
    __slots__ = ("video_type", "device_id", "video_file", "skip_frames", "source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder", "new_length", "show_data", "use_image", "use_temporal_jitter", "sampling_rate", "max_sampling_rate", "use_sampling_rate_jitter", "use_multiple_label", "num_of_labels", "scale", "mean_file", "crop_size", "mirror")
    class VideoType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WEBCAM: _ClassVar[VideoDataParameter.VideoType]
        VIDEO: _ClassVar[VideoDataParameter.VideoType]
    WEBCAM: VideoDataParameter.VideoType
    VIDEO: VideoDataParameter.VideoType
    VIDEO_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    VIDEO_FILE_FIELD_NUMBER: _ClassVar[int]
    SKIP_FRAMES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    NEW_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHOW_DATA_FIELD_NUMBER: _ClassVar[int]
    USE_IMAGE_FIELD_NUMBER: _ClassVar[int]
    USE_TEMPORAL_JITTER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    USE_SAMPLING_RATE_JITTER_FIELD_NUMBER: _ClassVar[int]
    USE_MULTIPLE_LABEL_FIELD_NUMBER: _ClassVar[int]
    NUM_OF_LABELS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    video_type: VideoDataParameter.VideoType
    device_id: int
    video_file: str
    skip_frames: int
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    root_folder: str
    new_length: int
    show_data: bool
    use_image: bool
    use_temporal_jitter: bool
    sampling_rate: int
    max_sampling_rate: int
    use_sampling_rate_jitter: bool
    use_multiple_label: bool
    num_of_labels: int
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    def __init__(self, video_type: _Optional[_Union[VideoDataParameter.VideoType, str]] = ..., device_id: _Optional[int] = ..., video_file: _Optional[str] = ..., skip_frames: _Optional[int] = ..., source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., shuffle: _Optional[bool] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: _Optional[bool] = ..., root_folder: _Optional[str] = ..., new_length: _Optional[int] = ..., show_data: _Optional[bool] = ..., use_image: _Optional[bool] = ..., use_temporal_jitter: _Optional[bool] = ..., sampling_rate: _Optional[int] = ..., max_sampling_rate: _Optional[int] = ..., use_sampling_rate_jitter: _Optional[bool] = ..., use_multiple_label: _Optional[bool] = ..., num_of_labels: _Optional[int] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ...) -> None: ...

class ROIPoolingParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ...) -> None: ...

class ROIAlignParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale", "sampling_ratio", "pad_ratio")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATIO_FIELD_NUMBER: _ClassVar[int]
    PAD_RATIO_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    sampling_ratio: int
    pad_ratio: float
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ..., sampling_ratio: _Optional[int] = ..., pad_ratio: _Optional[float] = ...) -> None: ...

class PSROIPoolingParameter(_message.Message):
    __slots__ = ("spatial_scale", "output_dim", "group_size")
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    spatial_scale: float
    output_dim: int
    group_size: int
    def __init__(self, spatial_scale: _Optional[float] = ..., output_dim: _Optional[int] = ..., group_size: _Optional[int] = ...) -> None: ...

class SmoothL1LossParameter(_message.Message):
    __slots__ = ("sigma",)
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    sigma: float
    def __init__(self, sigma: _Optional[float] = ...) -> None: ...

class ProposalParameter(_message.Message):
    __slots__ = ("feat_stride", "anchor_base_size", "anchor_scale", "anchor_ratio", "max_rois", "base_size", "min_size", "ratio", "scale", "pre_nms_topn", "post_nms_topn", "nms_thresh", "rpn_min_size", "rpn_nms_thresh")
    FEAT_STRIDE_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_BASE_SIZE_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_SCALE_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_ROIS_FIELD_NUMBER: _ClassVar[int]
    BASE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    PRE_NMS_TOPN_FIELD_NUMBER: _ClassVar[int]
    POST_NMS_TOPN_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESH_FIELD_NUMBER: _ClassVar[int]
    RPN_MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    RPN_NMS_THRESH_FIELD_NUMBER: _ClassVar[int]
    feat_stride: int
    anchor_base_size: int
    anchor_scale: int
    anchor_ratio: int
    max_rois: int
    base_size: int
    min_size: int
    ratio: _containers.RepeatedScalarFieldContainer[float]
    scale: _containers.RepeatedScalarFieldContainer[float]
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    rpn_min_size: int
    rpn_nms_thresh: float
    def __init__(self, feat_stride: _Optional[int] = ..., anchor_base_size: _Optional[int] = ..., anchor_scale: _Optional[int] = ..., anchor_ratio: _Optional[int] = ..., max_rois: _Optional[int] = ..., base_size: _Optional[int] = ..., min_size: _Optional[int] = ..., ratio: _Optional[_Iterable[float]] = ..., scale: _Optional[_Iterable[float]] = ..., pre_nms_topn: _Optional[int] = ..., post_nms_topn: _Optional[int] = ..., nms_thresh: _Optional[float] = ..., rpn_min_size: _Optional[int] = ..., rpn_nms_thresh: _Optional[float] = ...) -> None: ...

class BoxAnnotatorOHEMParameter(_message.Message):
    __slots__ = ("roi_per_img", "ignore_label")
    ROI_PER_IMG_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    roi_per_img: int
    ignore_label: int
    def __init__(self, roi_per_img: _Optional[int] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class BNParameter(_message.Message):
    __slots__ = ("scale_filler", "shift_filler", "bn_mode", "slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine")
    class BNMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEARN: _ClassVar[BNParameter.BNMode]
        INFERENCE: _ClassVar[BNParameter.BNMode]
    LEARN: BNParameter.BNMode
    INFERENCE: BNParameter.BNMode
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BN_MODE_FIELD_NUMBER: _ClassVar[int]
    SLOPE_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    scale_filler: FillerParameter
    shift_filler: FillerParameter
    bn_mode: BNParameter.BNMode
    slope_filler: FillerParameter
    bias_filler: FillerParameter
    momentum: float
    eps: float
    frozen: bool
    engine: ConvolutionParameter.Engine
    def __init__(self, scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., shift_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bn_mode: _Optional[_Union[BNParameter.BNMode, str]] = ..., slope_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., momentum: _Optional[float] = ..., eps: _Optional[float] = ..., frozen: _Optional[bool] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ...) -> None: ...

class UnpoolingParameter(_message.Message):
    __slots__ = ("unpool", "pad", "pad_h", "pad_w", "kernel_size", "kernel_h", "kernel_w", "stride", "stride_h", "stride_w", "unpool_size", "unpool_h", "unpool_w")
    class UnpoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[UnpoolingParameter.UnpoolMethod]
        AVE: _ClassVar[UnpoolingParameter.UnpoolMethod]
        TILE: _ClassVar[UnpoolingParameter.UnpoolMethod]
    MAX: UnpoolingParameter.UnpoolMethod
    AVE: UnpoolingParameter.UnpoolMethod
    TILE: UnpoolingParameter.UnpoolMethod
    UNPOOL_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    UNPOOL_SIZE_FIELD_NUMBER: _ClassVar[int]
    UNPOOL_H_FIELD_NUMBER: _ClassVar[int]
    UNPOOL_W_FIELD_NUMBER: _ClassVar[int]
    unpool: UnpoolingParameter.UnpoolMethod
    pad: int
    pad_h: int
    pad_w: int
    kernel_size: int
    kernel_h: int
    kernel_w: int
    stride: int
    stride_h: int
    stride_w: int
    unpool_size: int
    unpool_h: int
    unpool_w: int
    def __init__(self, unpool: _Optional[_Union[UnpoolingParameter.UnpoolMethod, str]] = ..., pad: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_size: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., unpool_size: _Optional[int] = ..., unpool_h: _Optional[int] = ..., unpool_w: _Optional[int] = ...) -> None: ...

class DenseImageDataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "mean_file", "root_folder", "mirror", "crop_height", "crop_width")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    mean_file: str
    root_folder: str
    mirror: bool
    crop_height: int
    crop_width: int
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., shuffle: _Optional[bool] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: _Optional[bool] = ..., mean_file: _Optional[str] = ..., root_folder: _Optional[str] = ..., mirror: _Optional[bool] = ..., crop_height: _Optional[int] = ..., crop_width: _Optional[int] = ...) -> None: ...

class SegAccuracyParameter(_message.Message):
    __slots__ = ("ignore_label", "reset", "metric", "output_label")
    class Metric(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PixelAccuracy: _ClassVar[SegAccuracyParameter.Metric]
        ClassAccuracy: _ClassVar[SegAccuracyParameter.Metric]
        PixelIOU: _ClassVar[SegAccuracyParameter.Metric]
    PixelAccuracy: SegAccuracyParameter.Metric
    ClassAccuracy: SegAccuracyParameter.Metric
    PixelIOU: SegAccuracyParameter.Metric
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LABEL_FIELD_NUMBER: _ClassVar[int]
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    reset: bool
    metric: SegAccuracyParameter.Metric
    output_label: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ignore_label: _Optional[_Iterable[int]] = ..., reset: _Optional[bool] = ..., metric: _Optional[_Union[SegAccuracyParameter.Metric, str]] = ..., output_label: _Optional[_Iterable[int]] = ...) -> None: ...

class TripletLossParameter(_message.Message):
    __slots__ = ("margin",)
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    margin: float
    def __init__(self, margin: _Optional[float] = ...) -> None: ...

class CenterLossParameter(_message.Message):
    __slots__ = ("num_output", "center_filler", "axis")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CENTER_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    center_filler: FillerParameter
    axis: int
    def __init__(self, num_output: _Optional[int] = ..., center_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ...) -> None: ...

class MarginInnerProductParameter(_message.Message):
    __slots__ = ("num_output", "type", "weight_filler", "axis", "base", "gamma", "power", "iteration", "lambda_min")
    class MarginType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SINGLE: _ClassVar[MarginInnerProductParameter.MarginType]
        DOUBLE: _ClassVar[MarginInnerProductParameter.MarginType]
        TRIPLE: _ClassVar[MarginInnerProductParameter.MarginType]
        QUADRUPLE: _ClassVar[MarginInnerProductParameter.MarginType]
    SINGLE: MarginInnerProductParameter.MarginType
    DOUBLE: MarginInnerProductParameter.MarginType
    TRIPLE: MarginInnerProductParameter.MarginType
    QUADRUPLE: MarginInnerProductParameter.MarginType
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_MIN_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    type: MarginInnerProductParameter.MarginType
    weight_filler: FillerParameter
    axis: int
    base: float
    gamma: float
    power: float
    iteration: int
    lambda_min: float
    def __init__(self, num_output: _Optional[int] = ..., type: _Optional[_Union[MarginInnerProductParameter.MarginType, str]] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., base: _Optional[float] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., iteration: _Optional[int] = ..., lambda_min: _Optional[float] = ...) -> None: ...

class FocalLossParameter(_message.Message):
    __slots__ = ("type", "gamma", "alpha", "beta")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ORIGIN: _ClassVar[FocalLossParameter.Type]
        LINEAR: _ClassVar[FocalLossParameter.Type]
    ORIGIN: FocalLossParameter.Type
    LINEAR: FocalLossParameter.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    type: FocalLossParameter.Type
    gamma: float
    alpha: float
    beta: float
    def __init__(self, type: _Optional[_Union[FocalLossParameter.Type, str]] = ..., gamma: _Optional[float] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ...) -> None: ...

class L1LossParameter(_message.Message):
    __slots__ = ("l2_per_location", "l2_prescale_by_channels", "normalize_by_num_entries", "epsilon", "plateau")
    L2_PER_LOCATION_FIELD_NUMBER: _ClassVar[int]
    L2_PRESCALE_BY_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_BY_NUM_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PLATEAU_FIELD_NUMBER: _ClassVar[int]
    l2_per_location: bool
    l2_prescale_by_channels: bool
    normalize_by_num_entries: bool
    epsilon: float
    plateau: float
    def __init__(self, l2_per_location: _Optional[bool] = ..., l2_prescale_by_channels: _Optional[bool] = ..., normalize_by_num_entries: _Optional[bool] = ..., epsilon: _Optional[float] = ..., plateau: _Optional[float] = ...) -> None: ...

class CorrelationParameter(_message.Message):
    __slots__ = ("pad", "kernel_size", "max_displacement", "stride_1", "stride_2", "single_direction", "do_abs", "correlation_type")
    class CorrelationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MULTIPLY: _ClassVar[CorrelationParameter.CorrelationType]
        SUBTRACT: _ClassVar[CorrelationParameter.CorrelationType]
    MULTIPLY: CorrelationParameter.CorrelationType
    SUBTRACT: CorrelationParameter.CorrelationType
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_DISPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    STRIDE_1_FIELD_NUMBER: _ClassVar[int]
    STRIDE_2_FIELD_NUMBER: _ClassVar[int]
    SINGLE_DIRECTION_FIELD_NUMBER: _ClassVar[int]
    DO_ABS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    pad: int
    kernel_size: int
    max_displacement: int
    stride_1: int
    stride_2: int
    single_direction: int
    do_abs: bool
    correlation_type: CorrelationParameter.CorrelationType
    def __init__(self, pad: _Optional[int] = ..., kernel_size: _Optional[int] = ..., max_displacement: _Optional[int] = ..., stride_1: _Optional[int] = ..., stride_2: _Optional[int] = ..., single_direction: _Optional[int] = ..., do_abs: _Optional[bool] = ..., correlation_type: _Optional[_Union[CorrelationParameter.CorrelationType, str]] = ...) -> None: ...

class SpatialTransformerParameter(_message.Message):
    __slots__ = ("transform_type", "sampler_type", "output_H", "output_W", "to_compute_dU", "theta_1_1", "theta_1_2", "theta_1_3", "theta_2_1", "theta_2_2", "theta_2_3")
    TRANSFORM_TYPE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_TYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_H_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_W_FIELD_NUMBER: _ClassVar[int]
    TO_COMPUTE_DU_FIELD_NUMBER: _ClassVar[int]
    THETA_1_1_FIELD_NUMBER: _ClassVar[int]
    THETA_1_2_FIELD_NUMBER: _ClassVar[int]
    THETA_1_3_FIELD_NUMBER: _ClassVar[int]
    THETA_2_1_FIELD_NUMBER: _ClassVar[int]
    THETA_2_2_FIELD_NUMBER: _ClassVar[int]
    THETA_2_3_FIELD_NUMBER: _ClassVar[int]
    transform_type: str
    sampler_type: str
    output_H: int
    output_W: int
    to_compute_dU: bool
    theta_1_1: float
    theta_1_2: float
    theta_1_3: float
    theta_2_1: float
    theta_2_2: float
    theta_2_3: float
    def __init__(self, transform_type: _Optional[str] = ..., sampler_type: _Optional[str] = ..., output_H: _Optional[int] = ..., output_W: _Optional[int] = ..., to_compute_dU: _Optional[bool] = ..., theta_1_1: _Optional[float] = ..., theta_1_2: _Optional[float] = ..., theta_1_3: _Optional[float] = ..., theta_2_1: _Optional[float] = ..., theta_2_2: _Optional[float] = ..., theta_2_3: _Optional[float] = ...) -> None: ...

class ReorgParameter(_message.Message):
    __slots__ = ("stride", "reverse")
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    stride: int
    reverse: bool
    def __init__(self, stride: _Optional[int] = ..., reverse: _Optional[bool] = ...) -> None: ...

class RegionLossParameter(_message.Message):
    __slots__ = ("side", "num_class", "bias_match", "coords", "num", "softmax", "jitter", "rescore", "object_scale", "class_scale", "noobject_scale", "coord_scale", "absolute", "thresh", "random", "biases", "softmax_tree", "class_map")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    BIAS_MATCH_FIELD_NUMBER: _ClassVar[int]
    COORDS_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    RESCORE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    COORD_SCALE_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_FIELD_NUMBER: _ClassVar[int]
    THRESH_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_TREE_FIELD_NUMBER: _ClassVar[int]
    CLASS_MAP_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    bias_match: int
    coords: int
    num: int
    softmax: int
    jitter: float
    rescore: int
    object_scale: float
    class_scale: float
    noobject_scale: float
    coord_scale: float
    absolute: int
    thresh: float
    random: int
    biases: _containers.RepeatedScalarFieldContainer[float]
    softmax_tree: str
    class_map: str
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., bias_match: _Optional[int] = ..., coords: _Optional[int] = ..., num: _Optional[int] = ..., softmax: _Optional[int] = ..., jitter: _Optional[float] = ..., rescore: _Optional[int] = ..., object_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., coord_scale: _Optional[float] = ..., absolute: _Optional[int] = ..., thresh: _Optional[float] = ..., random: _Optional[int] = ..., biases: _Optional[_Iterable[float]] = ..., softmax_tree: _Optional[str] = ..., class_map: _Optional[str] = ...) -> None: ...

class TransposeParameter(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class ImResizeParameter(_message.Message):
    __slots__ = ("target_spatial_width", "target_spatial_height", "factor", "start_scale", "scale_gap")
    TARGET_SPATIAL_WIDTH_FIELD_NUMBER: _ClassVar[int]
    TARGET_SPATIAL_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    START_SCALE_FIELD_NUMBER: _ClassVar[int]
    SCALE_GAP_FIELD_NUMBER: _ClassVar[int]
    target_spatial_width: int
    target_spatial_height: int
    factor: float
    start_scale: float
    scale_gap: float
    def __init__(self, target_spatial_width: _Optional[int] = ..., target_spatial_height: _Optional[int] = ..., factor: _Optional[float] = ..., start_scale: _Optional[float] = ..., scale_gap: _Optional[float] = ...) -> None: ...

class NmsParameter(_message.Message):
    __slots__ = ("threshold", "num_peak", "max_peaks", "num_parts")
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NUM_PEAK_FIELD_NUMBER: _ClassVar[int]
    MAX_PEAKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTS_FIELD_NUMBER: _ClassVar[int]
    threshold: float
    num_peak: int
    max_peaks: int
    num_parts: int
    def __init__(self, threshold: _Optional[float] = ..., num_peak: _Optional[int] = ..., max_peaks: _Optional[int] = ..., num_parts: _Optional[int] = ...) -> None: ...

class SpatialDropoutParameter(_message.Message):
    __slots__ = ("dropout_ratio",)
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    def __init__(self, dropout_ratio: _Optional[float] = ...) -> None: ...

class V1LayerParameter(_message.Message):
    __slots__ = ("bottom", "top", "name", "include", "exclude", "type", "blobs", "param", "blob_share_mode", "blobs_lr", "weight_decay", "loss_weight", "accuracy_param", "argmax_param", "concat_param", "contrastive_loss_param", "convolution_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param", "exp_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param", "inner_product_param", "lrn_param", "memory_data_param", "mvn_param", "pooling_param", "power_param", "relu_param", "sigmoid_param", "softmax_param", "slice_param", "tanh_param", "threshold_param", "window_data_param", "transform_param", "loss_param", "bn_param", "unpooling_param", "layer")
    class LayerType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[V1LayerParameter.LayerType]
        ABSVAL: _ClassVar[V1LayerParameter.LayerType]
        ACCURACY: _ClassVar[V1LayerParameter.LayerType]
        ARGMAX: _ClassVar[V1LayerParameter.LayerType]
        BNLL: _ClassVar[V1LayerParameter.LayerType]
        CONCAT: _ClassVar[V1LayerParameter.LayerType]
        CONTRASTIVE_LOSS: _ClassVar[V1LayerParameter.LayerType]
        CONVOLUTION: _ClassVar[V1LayerParameter.LayerType]
        DATA: _ClassVar[V1LayerParameter.LayerType]
        DECONVOLUTION: _ClassVar[V1LayerParameter.LayerType]
        DROPOUT: _ClassVar[V1LayerParameter.LayerType]
        DUMMY_DATA: _ClassVar[V1LayerParameter.LayerType]
        EUCLIDEAN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        ELTWISE: _ClassVar[V1LayerParameter.LayerType]
        EXP: _ClassVar[V1LayerParameter.LayerType]
        FLATTEN: _ClassVar[V1LayerParameter.LayerType]
        HDF5_DATA: _ClassVar[V1LayerParameter.LayerType]
        HDF5_OUTPUT: _ClassVar[V1LayerParameter.LayerType]
        HINGE_LOSS: _ClassVar[V1LayerParameter.LayerType]
        IM2COL: _ClassVar[V1LayerParameter.LayerType]
        IMAGE_DATA: _ClassVar[V1LayerParameter.LayerType]
        INFOGAIN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        INNER_PRODUCT: _ClassVar[V1LayerParameter.LayerType]
        LRN: _ClassVar[V1LayerParameter.LayerType]
        MEMORY_DATA: _ClassVar[V1LayerParameter.LayerType]
        MULTINOMIAL_LOGISTIC_LOSS: _ClassVar[V1LayerParameter.LayerType]
        MVN: _ClassVar[V1LayerParameter.LayerType]
        POOLING: _ClassVar[V1LayerParameter.LayerType]
        POWER: _ClassVar[V1LayerParameter.LayerType]
        RELU: _ClassVar[V1LayerParameter.LayerType]
        SIGMOID: _ClassVar[V1LayerParameter.LayerType]
        SIGMOID_CROSS_ENTROPY_LOSS: _ClassVar[V1LayerParameter.LayerType]
        SILENCE: _ClassVar[V1LayerParameter.LayerType]
        SOFTMAX: _ClassVar[V1LayerParameter.LayerType]
        SOFTMAX_LOSS: _ClassVar[V1LayerParameter.LayerType]
        SPLIT: _ClassVar[V1LayerParameter.LayerType]
        SLICE: _ClassVar[V1LayerParameter.LayerType]
        TANH: _ClassVar[V1LayerParameter.LayerType]
        WINDOW_DATA: _ClassVar[V1LayerParameter.LayerType]
        THRESHOLD: _ClassVar[V1LayerParameter.LayerType]
        BN: _ClassVar[V1LayerParameter.LayerType]
        UNPOOLING: _ClassVar[V1LayerParameter.LayerType]
    NONE: V1LayerParameter.LayerType
    ABSVAL: V1LayerParameter.LayerType
    ACCURACY: V1LayerParameter.LayerType
    ARGMAX: V1LayerParameter.LayerType
    BNLL: V1LayerParameter.LayerType
    CONCAT: V1LayerParameter.LayerType
    CONTRASTIVE_LOSS: V1LayerParameter.LayerType
    CONVOLUTION: V1LayerParameter.LayerType
    DATA: V1LayerParameter.LayerType
    DECONVOLUTION: V1LayerParameter.LayerType
    DROPOUT: V1LayerParameter.LayerType
    DUMMY_DATA: V1LayerParameter.LayerType
    EUCLIDEAN_LOSS: V1LayerParameter.LayerType
    ELTWISE: V1LayerParameter.LayerType
    EXP: V1LayerParameter.LayerType
    FLATTEN: V1LayerParameter.LayerType
    HDF5_DATA: V1LayerParameter.LayerType
    HDF5_OUTPUT: V1LayerParameter.LayerType
    HINGE_LOSS: V1LayerParameter.LayerType
    IM2COL: V1LayerParameter.LayerType
    IMAGE_DATA: V1LayerParameter.LayerType
    INFOGAIN_LOSS: V1LayerParameter.LayerType
    INNER_PRODUCT: V1LayerParameter.LayerType
    LRN: V1LayerParameter.LayerType
    MEMORY_DATA: V1LayerParameter.LayerType
    MULTINOMIAL_LOGISTIC_LOSS: V1LayerParameter.LayerType
    MVN: V1LayerParameter.LayerType
    POOLING: V1LayerParameter.LayerType
    POWER: V1LayerParameter.LayerType
    RELU: V1LayerParameter.LayerType
    SIGMOID: V1LayerParameter.LayerType
    SIGMOID_CROSS_ENTROPY_LOSS: V1LayerParameter.LayerType
    SILENCE: V1LayerParameter.LayerType
    SOFTMAX: V1LayerParameter.LayerType
    SOFTMAX_LOSS: V1LayerParameter.LayerType
    SPLIT: V1LayerParameter.LayerType
    SLICE: V1LayerParameter.LayerType
    TANH: V1LayerParameter.LayerType
    WINDOW_DATA: V1LayerParameter.LayerType
    THRESHOLD: V1LayerParameter.LayerType
    BN: V1LayerParameter.LayerType
    UNPOOLING: V1LayerParameter.LayerType
    class DimCheckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRICT: _ClassVar[V1LayerParameter.DimCheckMode]
        PERMISSIVE: _ClassVar[V1LayerParameter.DimCheckMode]
    STRICT: V1LayerParameter.DimCheckMode
    PERMISSIVE: V1LayerParameter.DimCheckMode
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    BLOB_SHARE_MODE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONCAT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DUMMY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HINGE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFOGAIN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LRN_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MVN_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    POWER_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PARAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    BN_PARAM_FIELD_NUMBER: _ClassVar[int]
    UNPOOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    bottom: _containers.RepeatedScalarFieldContainer[str]
    top: _containers.RepeatedScalarFieldContainer[str]
    name: str
    include: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    exclude: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    type: V1LayerParameter.LayerType
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    param: _containers.RepeatedScalarFieldContainer[str]
    blob_share_mode: _containers.RepeatedScalarFieldContainer[V1LayerParameter.DimCheckMode]
    blobs_lr: _containers.RepeatedScalarFieldContainer[float]
    weight_decay: _containers.RepeatedScalarFieldContainer[float]
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    accuracy_param: AccuracyParameter
    argmax_param: ArgMaxParameter
    concat_param: ConcatParameter
    contrastive_loss_param: ContrastiveLossParameter
    convolution_param: ConvolutionParameter
    data_param: DataParameter
    dropout_param: DropoutParameter
    dummy_data_param: DummyDataParameter
    eltwise_param: EltwiseParameter
    exp_param: ExpParameter
    hdf5_data_param: HDF5DataParameter
    hdf5_output_param: HDF5OutputParameter
    hinge_loss_param: HingeLossParameter
    image_data_param: ImageDataParameter
    infogain_loss_param: InfogainLossParameter
    inner_product_param: InnerProductParameter
    lrn_param: LRNParameter
    memory_data_param: MemoryDataParameter
    mvn_param: MVNParameter
    pooling_param: PoolingParameter
    power_param: PowerParameter
    relu_param: ReLUParameter
    sigmoid_param: SigmoidParameter
    softmax_param: SoftmaxParameter
    slice_param: SliceParameter
    tanh_param: TanHParameter
    threshold_param: ThresholdParameter
    window_data_param: WindowDataParameter
    transform_param: TransformationParameter
    loss_param: LossParameter
    bn_param: BNParameter
    unpooling_param: UnpoolingParameter
    layer: V0LayerParameter
    def __init__(self, bottom: _Optional[_Iterable[str]] = ..., top: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., include: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., type: _Optional[_Union[V1LayerParameter.LayerType, str]] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., param: _Optional[_Iterable[str]] = ..., blob_share_mode: _Optional[_Iterable[_Union[V1LayerParameter.DimCheckMode, str]]] = ..., blobs_lr: _Optional[_Iterable[float]] = ..., weight_decay: _Optional[_Iterable[float]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., accuracy_param: _Optional[_Union[AccuracyParameter, _Mapping]] = ..., argmax_param: _Optional[_Union[ArgMaxParameter, _Mapping]] = ..., concat_param: _Optional[_Union[ConcatParameter, _Mapping]] = ..., contrastive_loss_param: _Optional[_Union[ContrastiveLossParameter, _Mapping]] = ..., convolution_param: _Optional[_Union[ConvolutionParameter, _Mapping]] = ..., data_param: _Optional[_Union[DataParameter, _Mapping]] = ..., dropout_param: _Optional[_Union[DropoutParameter, _Mapping]] = ..., dummy_data_param: _Optional[_Union[DummyDataParameter, _Mapping]] = ..., eltwise_param: _Optional[_Union[EltwiseParameter, _Mapping]] = ..., exp_param: _Optional[_Union[ExpParameter, _Mapping]] = ..., hdf5_data_param: _Optional[_Union[HDF5DataParameter, _Mapping]] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ..., hinge_loss_param: _Optional[_Union[HingeLossParameter, _Mapping]] = ..., image_data_param: _Optional[_Union[ImageDataParameter, _Mapping]] = ..., infogain_loss_param: _Optional[_Union[InfogainLossParameter, _Mapping]] = ..., inner_product_param: _Optional[_Union[InnerProductParameter, _Mapping]] = ..., lrn_param: _Optional[_Union[LRNParameter, _Mapping]] = ..., memory_data_param: _Optional[_Union[MemoryDataParameter, _Mapping]] = ..., mvn_param: _Optional[_Union[MVNParameter, _Mapping]] = ..., pooling_param: _Optional[_Union[PoolingParameter, _Mapping]] = ..., power_param: _Optional[_Union[PowerParameter, _Mapping]] = ..., relu_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., sigmoid_param: _Optional[_Union[SigmoidParameter, _Mapping]] = ..., softmax_param: _Optional[_Union[SoftmaxParameter, _Mapping]] = ..., slice_param: _Optional[_Union[SliceParameter, _Mapping]] = ..., tanh_param: _Optional[_Union[TanHParameter, _Mapping]] = ..., threshold_param: _Optional[_Union[ThresholdParameter, _Mapping]] = ..., window_data_param: _Optional[_Union[WindowDataParameter, _Mapping]] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., loss_param: _Optional[_Union[LossParameter, _Mapping]] = ..., bn_param: _Optional[_Union[BNParameter, _Mapping]] = ..., unpooling_param: _Optional[_Union[UnpoolingParameter, _Mapping]] = ..., layer: _Optional[_Union[V0LayerParameter, _Mapping]] = ...) -> None: ...

class V0LayerParameter(_message.Message):
    __slots__ = ("name", "type", "num_output", "biasterm", "weight_filler", "bias_filler", "pad", "kernelsize", "group", "stride", "pool", "dropout_ratio", "local_size", "alpha", "beta", "k", "source", "scale", "meanfile", "batchsize", "cropsize", "mirror", "blobs", "blobs_lr", "weight_decay", "rand_skip", "det_fg_threshold", "det_bg_threshold", "det_fg_fraction", "det_context_pad", "det_crop_mode", "new_num", "new_channels", "new_height", "new_width", "shuffle_images", "concat_dim", "hdf5_output_param")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[V0LayerParameter.PoolMethod]
        AVE: _ClassVar[V0LayerParameter.PoolMethod]
        STOCHASTIC: _ClassVar[V0LayerParameter.PoolMethod]
    MAX: V0LayerParameter.PoolMethod
    AVE: V0LayerParameter.PoolMethod
    STOCHASTIC: V0LayerParameter.PoolMethod
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIASTERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNELSIZE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEANFILE_FIELD_NUMBER: _ClassVar[int]
    BATCHSIZE_FIELD_NUMBER: _ClassVar[int]
    CROPSIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    DET_FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DET_BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DET_FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    DET_CONTEXT_PAD_FIELD_NUMBER: _ClassVar[int]
    DET_CROP_MODE_FIELD_NUMBER: _ClassVar[int]
    NEW_NUM_FIELD_NUMBER: _ClassVar[int]
    NEW_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    CONCAT_DIM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    num_output: int
    biasterm: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    pad: int
    kernelsize: int
    group: int
    stride: int
    pool: V0LayerParameter.PoolMethod
    dropout_ratio: float
    local_size: int
    alpha: float
    beta: float
    k: float
    source: str
    scale: float
    meanfile: str
    batchsize: int
    cropsize: int
    mirror: bool
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    blobs_lr: _containers.RepeatedScalarFieldContainer[float]
    weight_decay: _containers.RepeatedScalarFieldContainer[float]
    rand_skip: int
    det_fg_threshold: float
    det_bg_threshold: float
    det_fg_fraction: float
    det_context_pad: int
    det_crop_mode: str
    new_num: int
    new_channels: int
    new_height: int
    new_width: int
    shuffle_images: bool
    concat_dim: int
    hdf5_output_param: HDF5OutputParameter
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., num_output: _Optional[int] = ..., biasterm: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., pad: _Optional[int] = ..., kernelsize: _Optional[int] = ..., group: _Optional[int] = ..., stride: _Optional[int] = ..., pool: _Optional[_Union[V0LayerParameter.PoolMethod, str]] = ..., dropout_ratio: _Optional[float] = ..., local_size: _Optional[int] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., k: _Optional[float] = ..., source: _Optional[str] = ..., scale: _Optional[float] = ..., meanfile: _Optional[str] = ..., batchsize: _Optional[int] = ..., cropsize: _Optional[int] = ..., mirror: _Optional[bool] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., blobs_lr: _Optional[_Iterable[float]] = ..., weight_decay: _Optional[_Iterable[float]] = ..., rand_skip: _Optional[int] = ..., det_fg_threshold: _Optional[float] = ..., det_bg_threshold: _Optional[float] = ..., det_fg_fraction: _Optional[float] = ..., det_context_pad: _Optional[int] = ..., det_crop_mode: _Optional[str] = ..., new_num: _Optional[int] = ..., new_channels: _Optional[int] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., shuffle_images: _Optional[bool] = ..., concat_dim: _Optional[int] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ...) -> None: ...

class ImagePreprocessing(_message.Message):
    __slots__ = ("channels", "height", "width", "transform_param", "intensity")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    INTENSITY_FIELD_NUMBER: _ClassVar[int]
    channels: int
    height: int
    width: int
    transform_param: TransformationParameter
    intensity: VolumeDataParameter.Intensity
    def __init__(self, channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., intensity: _Optional[_Union[VolumeDataParameter.Intensity, str]] = ...) -> None: ...
