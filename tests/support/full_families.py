"""Well-known networks at their full size, in the layers, settings and names of their authors' texts for Caffe.

Built by NetSpec, as such texts are. Numbers of parameters are those of the papers, or of the authors' other ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf import text_format

from bpt.caffe.netspec import L, NetSpec, P, Top
from bpt.config.proto import bpt_pb2

FIXED = [{"lr_mult": 0, "decay_mult": 0}] * 3
MSRA = {"type": "msra"}
SUM = P.Eltwise.SUM
MAX, AVE = P.Pooling.MAX, P.Pooling.AVE
SLASHED = ("{}/bn", "{}/scale", "{}/relu")
UNDERSCORED = ("{}_bn", "{}_scale", "{}_relu")


class Family(NamedTuple):
    """A network.

    Attributes:
        build: puts it into a NetSpec that has the inputs already.
        inputs: their shapes.
        parameters: how many numbers learn, at least and at most.
    """

    build: Callable[[NetSpec], None]
    inputs: dict[str, tuple[int, ...]]
    parameters: tuple[int, int]


def text_of(family: Family) -> str:
    """The text for training."""
    n = NetSpec()
    for name, shape in family.inputs.items():
        n[name] = L.Input(shape={"dim": list(shape)})
    family.build(n)
    return str(n.to_proto())


def text_for_use(family: Family) -> str:
    """The text without labels and losses; SegNet's BN has its statistics in its weights, as its script leaves it."""
    net = bpt_pb2.NetParameter()
    text_format.Parse(text_of(family), net)
    kept = [layer for layer in net.layer if not layer.type.endswith("Loss")]
    read = {bottom for layer in kept for bottom in layer.bottom}
    kept = [layer for layer in kept if layer.type != "Input" or layer.top[0] in read]
    for layer in kept:
        if layer.type == "BN":
            layer.bn_param.bn_mode = bpt_pb2.BNParameter.INFERENCE
    return text_format.MessageToString(bpt_pb2.NetParameter(layer=kept))


def conv(
    n: NetSpec, bottom: Top, name: str, outputs: int, kernel: int, stride: int = 1, pad: int | None = None,
    kind: str = "Convolution", bias: bool = False, **more: object,
) -> Top:  # fmt: skip
    pad = kernel // 2 if pad is None else pad
    top: Top = getattr(L, kind)(
        bottom, num_output=outputs, kernel_size=kernel, stride=stride, pad=pad, bias_term=bias, weight_filler=MSRA,
        **more,
    )  # fmt: skip
    n[name] = top
    return top


def relu(n: NetSpec, bottom: Top, name: str) -> Top:
    n[name] = L.ReLU(bottom, in_place=True)
    top: Top = n[name]
    return top


def norm(
    n: NetSpec, bottom: Top, name: str, active: bool = True, names: Sequence[str] = SLASHED, in_place: bool = True
) -> Top:
    """BatchNorm, Scale and, if ``active``, ReLU."""
    first, second, third = (each.format(name) for each in names)
    n[first] = L.BatchNorm(bottom, in_place=in_place, eps=1e-5, param=FIXED)
    top: Top = L.Scale(n[first], in_place=True, bias_term=True)
    n[second] = top
    return relu(n, top, third) if active else top


def join(n: NetSpec, name: str, *bottoms: Top) -> Top:
    top: Top = L.Concat(*bottoms)
    n[name] = top
    return top


def add(n: NetSpec, name: str, *bottoms: Top) -> Top:
    top: Top = L.Eltwise(*bottoms, operation=SUM)
    n[name] = top
    return top


def pool(n: NetSpec, bottom: Top, name: str, how: int, kernel: int, stride: int, **more: object) -> Top:
    top: Top = L.Pooling(bottom, pool=how, kernel_size=kernel, stride=stride, **more)
    n[name] = top
    return top


def classify(n: NetSpec, bottom: Top, name: str) -> None:
    """Global average, classes by a 1×1 convolution, and the loss."""
    n["pool_ave"] = L.Pooling(bottom, pool=AVE, global_pooling=True)
    n["loss"] = L.SoftmaxWithLoss(conv(n, n["pool_ave"], name, 1000, 1, bias=True), n["label"])


def densenet_121(n: NetSpec) -> None:
    """Huang et al., 2017. (https://github.com/shicai/DenseNet-Caffe)"""

    def activated(bottom: Top, name: str) -> Top:
        return norm(n, bottom, name, in_place=False)

    top = norm(n, conv(n, n["data"], "conv1", 64, 7, 2), "conv1")
    top, channels = pool(n, top, "pool1", MAX, 3, 2, pad=1, ceil_mode=False), 64
    for stage, number in enumerate((6, 12, 24, 16), 2):
        for place in range(1, number + 1):
            name = f"conv{stage}_{place}"
            inner = conv(n, activated(top, f"{name}/x1"), f"{name}/x1", 128, 1)
            inner = conv(n, activated(inner, f"{name}/x2"), f"{name}/x2", 32, 3)
            top, channels = join(n, f"concat_{stage}_{place}", top, inner), channels + 32
        top = activated(top, f"conv{stage}_blk")
        if stage < 5:
            channels //= 2
            top = pool(n, conv(n, top, f"conv{stage}_blk", channels, 1), f"pool{stage}", AVE, 2, 2)
    classify(n, top, "fc6")


def dpn_92(n: NetSpec) -> None:
    """Chen et al., 2017: each block's outputs are cut; some are added to what came, the others join it."""

    def unit(bottom: Top, name: str, outputs: int, kernel: int = 1, stride: int = 1, group: int = 1) -> Top:
        active = norm(n, bottom, name, names=("{}__bn", "{}__bn_sc", "{}__bn__relu"), in_place=False)
        return conv(n, active, name, outputs, kernel, stride, group=group)

    def cut(bottom: Top, name: str, at: int) -> tuple[Top, Top]:
        n[f"{name}_split1"], n[f"{name}_split2"] = L.Slice(bottom, ntop=2, slice_point=at)
        return n[f"{name}_split1"], n[f"{name}_split2"]

    top = norm(n, conv(n, n["data"], "conv1_x_1", 64, 7, 2), "conv1_x_1")
    top = pool(n, top, "pool1", MAX, 3, 2)
    for stage, (number, width, growth) in enumerate(((3, 256, 16), (4, 512, 32), (20, 1024, 24), (3, 2048, 128)), 2):
        inner = 96 * width // 256
        for place in range(1, number + 1):
            name, stride = f"conv{stage}_{place}", 2 if stage > 2 and place == 1 else 1
            if place == 1:
                projected = unit(top, f"{name}_c1x1_w(s/{stride})", width + 2 * growth, 1, stride)
                residual, dense = cut(projected, f"{name}_c1x1_w", width)
            both = unit(unit(top, f"{name}_c1x1_a", inner), f"{name}_c3x3_b", inner, 3, stride, 32)
            more, new = cut(unit(both, f"{name}_c1x1_c", width + growth), f"{name}_c1x1_c", width)
            residual, dense = add(n, f"{name}_ele", residual, more), join(n, f"{name}_concat", dense, new)
            top = join(n, f"{name}_both", residual, dense)
    classify(n, norm(n, top, "conv5_x_x"), "fc6")


def xception(n: NetSpec) -> None:
    """Chollet, 2017. (https://github.com/yihui-he/Xception-caffe)"""

    def separable(bottom: Top, name: str, channels: int, outputs: int, kind: str = "Convolution") -> Top:
        more: dict[str, Any] = {"group": channels} if kind == "Convolution" else {}
        top = conv(n, bottom, f"{name}_1", channels, 3, kind=kind, **more)
        return norm(n, conv(n, top, f"{name}_2", outputs, 1), name, False, UNDERSCORED)

    top = norm(n, conv(n, n["data"], "conv1", 32, 3, 2, 0), "conv1", names=UNDERSCORED)
    top, channels = norm(n, conv(n, top, "conv2", 64, 3, 1, 0), "conv2", names=UNDERSCORED), 64
    for number, outputs in enumerate((128, 256, 728, *[728] * 8, 1024), 1):
        name, moves = f"xception{number}", outputs != channels
        shortcut = top
        if moves:
            matched = conv(n, top, f"{name}_match_conv", outputs, 1, 2)
            shortcut = norm(n, matched, f"{name}_match_conv", False, UNDERSCORED)
        widths = (channels if outputs == 1024 else outputs, outputs) if moves else (outputs,) * 3
        for place, width in enumerate(widths, 1):
            if place > 1:
                top = relu(n, top, f"{name}_conv{place}_relu")
            elif number > 1:
                n[f"{name}_elu"] = L.ReLU(top)
                top = n[f"{name}_elu"]
            top = separable(top, f"{name}_conv{place}", channels if place == 1 else widths[place - 2], width)
        if moves:
            top = pool(n, top, f"{name}_pool", MAX, 3, 2, pad=1, round_mode=P.Pooling.FLOOR)
        top, channels = add(n, f"{name}_elewise", shortcut, top), outputs
    for name, outputs in (("conv3", 1536), ("conv4", 2048)):
        top = relu(n, separable(top, name, channels, outputs, "ConvolutionDepthwise"), f"{name}_relu")
        channels = outputs
    classify(n, top, "classifier")


def shufflenet(n: NetSpec) -> None:
    """Zhang et al., 2018: 1×, three groups. (https://github.com/farmingyard/ShuffleNet)"""
    top = norm(n, conv(n, n["data"], "conv1", 24, 3, 2), "conv1", names=UNDERSCORED)
    top, channels, number = pool(n, top, "pool1", MAX, 3, 2), 24, 0
    for outputs, units in ((240, 4), (480, 8), (960, 4)):
        for place in range(units):
            number += 1
            name, inner = f"resx{number}", outputs // 4
            inner = 54 if number == 1 else inner
            mixed = conv(n, top, f"{name}_conv1", inner, 1, group=1 if number == 1 else 3)
            mixed = norm(n, mixed, f"{name}_conv1", names=UNDERSCORED)
            n[f"shuffle{number}"] = L.ShuffleChannel(mixed, shuffle_channel_param={"group": 3})
            stride, added = (1, outputs) if place else (2, outputs - channels)
            deep = conv(n, n[f"shuffle{number}"], f"{name}_conv2", inner, 3, stride, kind="DepthwiseConvolution",
                        group=inner)  # fmt: skip
            deep = norm(n, deep, f"{name}_conv2", False, UNDERSCORED)
            deep = norm(n, conv(n, deep, f"{name}_conv3", added, 1, group=3), f"{name}_conv3", False, UNDERSCORED)
            if place:
                top = add(n, f"{name}_elewise", top, deep)
            else:
                top = join(n, f"{name}_concat", pool(n, top, f"{name}_match_conv", AVE, 3, 2), deep)
            top = relu(n, top, f"{name}_out_relu")
        channels = outputs
    classify(n, top, "fc1000")


def shufflenet_2(n: NetSpec) -> None:
    """Ma et al., 2018: 1×. (https://github.com/miaow1988/ShuffleNet_V2_pytorch_caffe)"""

    def unit(bottom: Top, name: str, outputs: int, kernel: int = 1, stride: int = 1) -> Top:
        if kernel == 1:
            return norm(n, conv(n, bottom, name, outputs, 1), name)
        deep = conv(n, bottom, name, outputs, 3, stride, kind="ConvolutionDepthwise")
        return norm(n, deep, name, False)

    top = norm(n, conv(n, n["data"], "stage1/conv", 24, 3, 2), "stage1/conv")
    top, channels = pool(n, top, "stage1/pool", MAX, 3, 2), 24
    for stage, (outputs, units) in enumerate(((116, 4), (232, 8), (464, 4)), 2):
        half = outputs // 2
        for place in range(1, units + 1):
            name = f"stage{stage}_{place}"
            if place == 1:
                left = unit(unit(top, f"{name}/left_dw", channels, 3, 2), f"{name}/left", half)
                right = top
            else:
                n[f"{name}/left"], n[f"{name}/right"] = L.Slice(top, ntop=2, slice_point=half)
                left, right = n[f"{name}/left"], n[f"{name}/right"]
            right = unit(right, f"{name}/conv1", half)
            right = unit(unit(right, f"{name}/conv2", half, 3, 1 + (place == 1)), f"{name}/conv3", half)
            n[f"{name}/shuffle"] = L.ShuffleChannel(join(n, f"{name}/concat", left, right), group=2)
            top = n[f"{name}/shuffle"]
        channels = outputs
    classify(n, unit(top, "conv5", 1024), "fc")


class Head(NamedTuple):
    """What a blob is asked for: ``priors`` boxes a place."""

    blob: Top
    name: str
    priors: int
    box: dict[str, object]


def detect(n: NetSpec, heads: Iterable[Head], classes: int, kernel: int = 1) -> None:
    """SSD's chains of Permute and Flatten behind each head, its prior boxes, and its loss."""
    found: dict[str, list[Top]] = {"loc": [], "conf": [], "priorbox": []}
    for blob, name, priors, box in heads:
        for kind, outputs in (("loc", 4 * priors), ("conf", classes * priors)):
            top = f"{name}_mbox_{kind}"
            permuted = L.Permute(conv(n, blob, top, outputs, kernel, bias=True), order=[0, 2, 3, 1])
            n[f"{top}_perm"] = permuted
            n[f"{top}_flat"] = L.Flatten(permuted, axis=1)
            found[kind].append(n[f"{top}_flat"])
        n[f"{name}_mbox_priorbox"] = L.PriorBox(
            blob, n["data"], clip=False, variance=[0.1, 0.1, 0.2, 0.2], offset=0.5, **box
        )
        found["priorbox"].append(n[f"{name}_mbox_priorbox"])
    for kind, tops in found.items():
        n[f"mbox_{kind}"] = L.Concat(*tops, axis=2 if kind == "priorbox" else 1)
    n["loss"] = L.MultiBoxLoss(
        n["mbox_loc"], n["mbox_conf"], n["mbox_priorbox"], n["label"], propagate_down=[True, True, False, False],
        loss_param={"normalization": P.Loss.VALID}, loc_loss_type=P.MultiBoxLoss.SMOOTH_L1,
        conf_loss_type=P.MultiBoxLoss.SOFTMAX, loc_weight=1, num_classes=classes, share_location=True,
        match_type=P.MultiBoxLoss.PER_PREDICTION, overlap_threshold=0.5, use_prior_for_matching=True,
        background_label_id=0, use_difficult_gt=True, neg_pos_ratio=3, neg_overlap=0.5,
        code_type=P.PriorBox.CENTER_SIZE, ignore_cross_boundary_bbox=False,
        mining_type=P.MultiBoxLoss.MAX_NEGATIVE,
    )  # fmt: skip


def mobilenet_ssd(n: NetSpec) -> None:
    """https://github.com/chuanqi305/MobileNet-SSD"""
    tops = {"": norm(n, conv(n, n["data"], "conv0", 32, 3, 2), "conv0")}
    top, channels = tops[""], 32
    rows = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
    for number, (outputs, stride) in enumerate(rows, 1):
        name = f"conv{number}"
        deep = conv(n, top, f"{name}/dw", channels, 3, stride, group=channels, engine=P.Convolution.CAFFE)
        top = norm(n, conv(n, norm(n, deep, f"{name}/dw"), name, outputs, 1), name)
        tops[name], channels = top, outputs
    for number, (inner, outputs) in enumerate(((256, 512), (128, 256), (128, 256), (64, 128)), 14):
        top = norm(n, conv(n, top, f"conv{number}_1", inner, 1), f"conv{number}_1")
        top = norm(n, conv(n, top, f"conv{number}_2", outputs, 3, 2), f"conv{number}_2")
        tops[f"conv{number}_2"] = top
    sizes = (60, 105, 150, 195, 240, 285, 300)
    heads = [Head(tops["conv11"], "conv11", 3, {"min_size": 60.0, "aspect_ratio": 2.0, "flip": True})]
    for name, low, high in zip(
        ("conv13", "conv14_2", "conv15_2", "conv16_2", "conv17_2"), sizes[1:6], sizes[2:], strict=True
    ):
        box = {"min_size": float(low), "max_size": float(high), "aspect_ratio": [2.0, 3.0], "flip": True}
        heads.append(Head(tops[name], name, 6, box))
    detect(n, heads, 21)


def pelee(n: NetSpec) -> None:
    """Wang et al., 2018. (https://github.com/Robert-JunWang/Pelee)"""

    def unit(bottom: Top, name: str, outputs: int, kernel: int = 1, stride: int = 1, pad: int | None = None) -> Top:
        return norm(n, conv(n, bottom, name, outputs, kernel, stride, pad), name)

    stem = unit(n["data"], "stem1", 32, 3, 2)
    other = unit(unit(stem, "stem2a", 16), "stem2b", 32, 3, 2)
    top = unit(join(n, "stem/concat", pool(n, stem, "stem/pool", MAX, 2, 2), other), "stem3", 32)
    channels, tops = 32, {}
    for stage, (units, width) in enumerate(((3, 1), (4, 2), (8, 4), (6, 4)), 1):
        for place in range(1, units + 1):
            name, inner = f"stage{stage}_{place}", 16 * width
            inner = inner if inner <= channels / 2 else channels // 8 * 4
            one = unit(unit(top, f"{name}/a1", inner), f"{name}/a2", 16, 3)
            two = unit(unit(unit(top, f"{name}/b1", inner), f"{name}/b2", 16, 3), f"{name}/b3", 16, 3)
            top, channels = join(n, f"{name}/concat", top, one, two), channels + 32
        top = tops[stage] = unit(top, f"stage{stage}_tb", channels)
        if stage < 4:
            top = pool(n, top, f"stage{stage}_pool", AVE, 2, 2)
    sources = [tops[3], tops[4]]
    for number, (inner, stride, pad) in enumerate(((256, 2, 1), (128, 1, 0), (128, 1, 0)), 1):
        top = unit(unit(top, f"ext1/fe{number}_1", inner), f"ext1/fe{number}_2", 256, 3, stride, pad)
        sources.append(top)
    heads, sizes = [], (30.4, 60.8, 112.5, 164.2, 215.8, 267.4, 319.1)
    for number, source in enumerate((sources[0], *sources), 1):
        name = f"ext/pm{number}"
        res = unit(unit(source, f"{name}/b2a", 128), f"{name}/b2b", 128, 3)
        res = norm(n, conv(n, res, f"{name}/b2c", 256, 1), f"{name}/b2c", False)
        side = norm(n, conv(n, source, f"{name}/b1", 256, 1), f"{name}/b1", False)
        active = relu(n, add(n, f"{name}/res", side, res), f"{name}/res/relu")
        box = {"min_size": sizes[number - 1], "max_size": sizes[number], "aspect_ratio": [2.0, 3.0], "flip": True}
        heads.append(Head(active, name, 6, box))
    detect(n, heads, 21)


def faceboxes(n: NetSpec) -> None:
    """Zhang et al., 2017. (https://github.com/sfzhang15/FaceBoxes)"""

    def both(bottom: Top, name: str, outputs: int, kernel: int, stride: int) -> Top:
        """CReLU: the outputs and what they lack."""
        top = norm(n, conv(n, bottom, name, outputs, kernel, stride), name, False)
        n[f"{name}/neg"] = L.Power(top, power=1, scale=-1.0, shift=0)
        return relu(n, join(n, f"{name}/concat", top, n[f"{name}/neg"]), f"{name}/relu")

    def unit(bottom: Top, name: str, outputs: int, kernel: int = 1, stride: int = 1) -> Top:
        return norm(n, conv(n, bottom, name, outputs, kernel, stride), name)

    top = pool(n, both(n["data"], "conv1", 24, 7, 4), "pool1", MAX, 3, 2)
    top = pool(n, both(top, "conv2", 64, 5, 2), "pool2", MAX, 3, 2)
    for name in ("inception1", "inception2", "inception3"):
        pooled = pool(n, top, f"{name}_pool", MAX, 3, 1, pad=1)
        third = unit(unit(top, f"{name}_3x3_reduce", 24), f"{name}_3x3", 32, 3)
        fourth = unit(unit(top, f"{name}_3x3_reduce_2", 24), f"{name}_3x3_2", 32, 3)
        fourth = unit(fourth, f"{name}_3x3_3", 32, 3)
        top = join(n, name, unit(top, f"{name}_1x1", 32), unit(pooled, f"{name}_1x1_2", 32), third, fourth)
    heads = [Head(top, "inception3", 21, {"min_size": [32.0] * 16 + [64.0] * 4 + [128.0]})]
    for name, size in (("conv3", 256.0), ("conv4", 512.0)):
        top = unit(unit(top, f"{name}_1", 128), f"{name}_2", 256, 3, 2)
        heads.append(Head(top, f"{name}_2", 1, {"min_size": size}))
    detect(n, heads, 2, 3)


VGG = ((1, 2, 64), (2, 2, 128), (3, 3, 256), (4, 3, 512), (5, 3, 512))
"""Of VGG-16 each stage, its convolutions, and their outputs."""
SEGNETS_BN = {"scale_filler": {"value": 1}, "shift_filler": {"value": 0.001}}


def segnet(n: NetSpec) -> None:
    """Badrinarayanan et al., 2017, for CamVid. (https://github.com/alexgkendall/SegNet-Tutorial)"""

    def unit(bottom: Top, name: str, outputs: int, suffix: str = "") -> Top:
        top = conv(n, bottom, f"conv{name}{suffix}", outputs, 3, bias=True)
        n[f"conv{name}{suffix}_bn"] = L.BN(top, in_place=True, **SEGNETS_BN)
        return relu(n, n[f"conv{name}{suffix}_bn"], f"relu{name}{suffix}")

    top, masks = n["data"], {}
    for stage, number, outputs in VGG:
        for place in range(1, number + 1):
            top = unit(top, f"{stage}_{place}", outputs)
        n[f"pool{stage}"], n[f"pool{stage}_mask"] = L.Pooling(top, ntop=2, pool=MAX, kernel_size=2, stride=2)
        top, masks[stage] = n[f"pool{stage}"], n[f"pool{stage}_mask"]
    sizes = {5: {"upsample_w": 30, "upsample_h": 23}, 4: {"upsample_w": 60, "upsample_h": 45}}
    for (stage, number, outputs), below in zip(VGG[::-1], (512, 256, 128, 64, 0), strict=True):
        n[f"upsample{stage}"] = L.Upsample(top, masks[stage], scale=2, **sizes.get(stage, {}))
        top = n[f"upsample{stage}"]
        for place in range(number, 0, -1):
            if stage == 1 and place == 1:
                top = conv(n, top, "conv1_1_D", 11, 3, bias=True)
            else:
                top = unit(top, f"{stage}_{place}", below if place == 1 else outputs, "_D")
    weights = [0.2595, 0.1826, 4.5640, 0.1417, 0.9051, 0.3826, 9.6446, 1.8418, 0.6823, 6.2478, 7.3614]
    n["loss"] = L.SoftmaxWithLoss(
        top, n["label"], loss_param={"weight_by_label_freqs": True, "ignore_label": 11, "class_weighting": weights}
    )


def enet(n: NetSpec) -> None:
    """Paszke et al., 2016, for Cityscapes. (https://github.com/TimoSaemann/ENet)"""

    def active(bottom: Top, name: str, prelu: bool = True) -> Top:
        n[f"bn{name}"] = L.BN(bottom, in_place=True, **SEGNETS_BN)
        if not prelu:
            top: Top = n[f"bn{name}"]
            return top
        top = L.PReLU(n[f"bn{name}"], in_place=True)
        n[f"prelu{name}"] = top
        return top

    def bottleneck(bottom: Top, name: str, inputs: int, outputs: int, kind: str = "", mask: Top | None = None) -> Top:
        """By ``kind``: "": 3×3, "down", "up" (with the places of ``mask``), "5": 5×1 and 1×5, "d4": dilated by 4."""
        inner = outputs // 4 if kind != "up" else inputs // 4
        down = kind == "down"
        top = conv(n, bottom, f"conv{name}_0", inner, 2 if down else 1, 2 if down else 1, 0)
        top = active(top, f"{name}_0")
        if kind == "up":
            top = conv(n, top, f"deconv{name}_1", inner, 2, 2, 0, kind="Deconvolution", bias=True)
        elif kind == "5":
            for place, (height, width) in enumerate(((5, 1), (1, 5)), 1):
                n[f"conv{name}_1_{place}"] = L.Convolution(
                    top, num_output=inner, kernel_h=height, kernel_w=width, pad_h=height // 2, pad_w=width // 2,
                    bias_term=place == 2, weight_filler=MSRA,
                )  # fmt: skip
                top = n[f"conv{name}_1_{place}"]
        else:
            spread = int(kind[1:]) if kind.startswith("d") and not down else 1
            top = conv(n, top, f"conv{name}_1", inner, 3, pad=spread, dilation=spread, bias=True)
        top = active(conv(n, active(top, f"{name}_1"), f"conv{name}_2", outputs, 1), f"{name}_2", False)
        if kind != "up":
            n[f"drop{name}_3"] = L.Dropout(top, in_place=True, dropout_ratio=0.1)
            top = n[f"drop{name}_3"]
        side = bottom
        if down:
            n[f"pool{name}_4"], n[f"pool{name}_4_mask"] = L.Pooling(bottom, ntop=2, pool=MAX, kernel_size=2, stride=2)
            n[f"zeros{name}_4"] = L.Power(n[f"pool{name}_4"], scale=0)
            zeros = [n[f"zeros{name}_4"]] * (outputs // inputs - 1)
            side = join(n, f"concat{name}_4", n[f"pool{name}_4"], *zeros)
        elif mask is not None:
            side = active(conv(n, bottom, f"conv{name}_4", outputs, 1), f"{name}_4", False)
            n[f"upsample{name}_4"] = L.Upsample(side, mask, scale=2)
            side = n[f"upsample{name}_4"]
        n[f"prelu{name}_5"] = L.PReLU(add(n, f"eltwise{name}_5", side, top), in_place=True)
        result: Top = n[f"prelu{name}_5"]
        return result

    first = conv(n, n["data"], "conv0_1", 13, 3, 2, bias=True)
    top = active(join(n, "concat0_1", first, pool(n, n["data"], "pool0_1", MAX, 2, 2)), "0_1")
    top = bottleneck(top, "1_0", 16, 64, "down")
    for place in range(1, 5):
        top = bottleneck(top, f"1_{place}", 64, 64)
    top = bottleneck(top, "2_0", 64, 128, "down")
    kinds = ("", "d2", "5", "d4", "", "d8", "5", "d16")
    for stage in (2, 3):
        for place, kind in enumerate(kinds, 1):
            top = bottleneck(top, f"{stage}_{place}", 128, 128, kind)
    top = bottleneck(top, "4_0", 128, 64, "up", n["pool2_0_4_mask"])
    top = bottleneck(bottleneck(top, "4_1", 64, 64), "4_2", 64, 64)
    top = bottleneck(top, "5_0", 64, 16, "up", n["pool1_0_4_mask"])
    top = conv(n, bottleneck(top, "5_1", 16, 16), "deconv6_0_0", 19, 2, 2, 0, kind="Deconvolution", bias=True)
    n["loss"] = L.SoftmaxWithLoss(top, n["label"], loss_param={"ignore_label": 255})


def fast_rcnn(n: NetSpec) -> None:
    """Girshick, 2015, by VGG-16. (https://github.com/rbgirshick/fast-rcnn)"""
    top = n["data"]
    for stage, number, outputs in VGG:
        learns = [{"lr_mult": float(stage > 2), "decay_mult": float(stage > 2)}, {"lr_mult": 2.0 * (stage > 2)}]
        for place in range(1, number + 1):
            name = f"{stage}_{place}"
            top = relu(n, conv(n, top, f"conv{name}", outputs, 3, bias=True, param=learns), f"relu{name}")
        if stage < 5:
            top = pool(n, top, f"pool{stage}", MAX, 2, 2)
    n["roi_pool5"] = L.ROIPooling(top, n["rois"], pooled_w=7, pooled_h=7, spatial_scale=0.0625)
    top = n["roi_pool5"]
    for name in ("6", "7"):
        n[f"fc{name}"] = L.InnerProduct(top, num_output=4096, weight_filler={"type": "gaussian", "std": 0.005})
        n[f"drop{name}"] = L.Dropout(relu(n, n[f"fc{name}"], f"relu{name}"), in_place=True, dropout_ratio=0.5)
        top = n[f"drop{name}"]
    for name, outputs, std in (("cls_score", 21, 0.01), ("bbox_pred", 84, 0.001)):
        n[name] = L.InnerProduct(top, num_output=outputs, weight_filler={"type": "gaussian", "std": std})
    n["loss_cls"] = L.SoftmaxWithLoss(n["cls_score"], n["labels"], loss_weight=1)
    n["loss_bbox"] = L.SmoothL1Loss(n["bbox_pred"], n["bbox_targets"], n["bbox_loss_weights"], loss_weight=1)


PICTURES = {"data": (2, 3, 224, 224), "label": (2,)}
OBJECTS = (1, 1, 9, 8)
REGIONS = {"rois": (16, 5), "labels": (16,), "bbox_targets": (16, 84), "bbox_loss_weights": (16, 84)}
FAMILIES = {
    "DenseNet-121": Family(densenet_121, PICTURES, (7_978_856, 7_978_856)),
    "DPN-92": Family(dpn_92, PICTURES, (37_668_392, 37_668_392)),
    "Xception": Family(xception, {"data": (2, 3, 299, 299), "label": (2,)}, (22_855_952, 22_855_952)),
    "ShuffleNet": Family(shufflenet, PICTURES, (1_850_000, 1_880_000)),
    "ShuffleNet 2": Family(shufflenet_2, PICTURES, (2_278_604, 2_278_604)),
    "MobileNet-SSD": Family(mobilenet_ssd, {"data": (2, 3, 300, 300), "label": OBJECTS}, (5_500_000, 6_000_000)),
    "Pelee": Family(pelee, {"data": (2, 3, 304, 304), "label": OBJECTS}, (5_000_000, 6_000_000)),
    "FaceBoxes": Family(faceboxes, {"data": (1, 3, 1024, 1024), "label": OBJECTS}, (1_000_000, 1_015_000)),
    "SegNet": Family(segnet, {"data": (1, 3, 360, 480), "label": (1, 1, 360, 480)}, (29_400_000, 29_500_000)),
    "ENet": Family(enet, {"data": (1, 3, 512, 512), "label": (1, 1, 512, 512)}, (365_000, 375_000)),
    "Fast R-CNN": Family(fast_rcnn, {"data": (1, 3, 320, 480), **REGIONS}, (134_690_729, 134_690_729)),
}
