"""torchvision's residual networks, with the layer names of the authors' Caffe files.

He et al., "Deep residual learning for image recognition", 2016. torchvision differs in two places: where an image
shrinks, the 3x3 convolution of a bottleneck has the stride (the authors: the first 1x1), and the first pooling has a
border of 1.
"""

from __future__ import annotations

from bpt.apps.convert.from_torchvision.layer_stack import INPUT, LayerStack

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_BOTTLENECKS = 50  # smallest depth whose blocks are bottlenecks
_LETTERS = 50  # largest depth whose blocks are all called by letters
_FIRST_STAGE = 2  # in the paper's names, after conv1


def build_resnet(depth: int, classes: int) -> LayerStack:
    """Return ResNet-``depth`` with a score for each of ``classes``."""
    net = LayerStack(f"ResNet-{depth}")
    top = net.convolution(INPUT, "conv1", "conv1", 64, 7, stride=2)
    net.batch_norm(top, "bn_conv1", "scale_conv1", "bn1")
    net.relu(top, "conv1_relu")
    top = net.max_pooling(top, "pool1", 3, 2, pad=1, floor=True)
    for stage, blocks in enumerate(BLOCKS[depth], _FIRST_STAGE):
        for block in range(blocks):
            stride = 2 if stage > _FIRST_STAGE and block == 0 else 1
            name = f"{stage}{_block_name(depth, block, blocks)}"
            module = f"layer{stage - _FIRST_STAGE + 1}.{block}"
            channels = 64 * 2 ** (stage - _FIRST_STAGE)
            top = _add_block(net, top, name, module, channels, stride, depth >= _BOTTLENECKS, block == 0)
    top = net.global_average(top, "pool5")
    net.softmax(net.inner_product(top, f"fc{classes}", "fc", classes))
    return net


def _block_name(depth: int, block: int, blocks: int) -> str:
    """Return a, b, c, … or, in the long stages of deep networks, a, b1, b2, …: the names in the released weights."""
    if depth <= _LETTERS or blocks == min(BLOCKS[depth]):
        return "abcdef"[block]
    return f"b{block}" if block else "a"


def _add_block(
    net: LayerStack, bottom: str, name: str, module: str, channels: int, stride: int, bottleneck: bool, first: bool
) -> str:
    """Add a residual block: its convolutions, plus its bottom or, where the shape changes, a projection of that."""
    outputs = 4 * channels if bottleneck else channels
    kernels = (1, 3, 1) if bottleneck else (3, 3)
    strides = (1, stride, 1) if bottleneck else (stride, 1)
    shortcut = bottom
    if first and (bottleneck or stride > 1):
        shortcut = _add_convolution(net, bottom, f"{name}_branch1", f"{module}.downsample", (outputs, 1, stride))
    top = bottom
    last = len(kernels) - 1
    for number, (kernel, step) in enumerate(zip(kernels, strides, strict=True)):
        branch = f"{name}_branch2{'abc'[number]}"
        sizes = outputs if number == last else channels, kernel, step
        top = _add_convolution(net, top, branch, module, sizes, number + 1)
        if number < last:
            net.relu(top, f"res{branch}_relu")
    top = net.add(f"res{name}", (shortcut, top))
    net.relu(top, f"res{name}_relu")
    return top


def _add_convolution(
    net: LayerStack, bottom: str, branch: str, module: str, sizes: tuple[int, int, int], number: int = 0
) -> str:
    """Add a convolution of (channels, kernel, stride), and its normalisation.

    Args:
        net: the network.
        bottom: the blob below.
        branch: what the names of the layers end in.
        module: the name of the block's module or, for a projection, of its own.
        sizes: the number of channels, the side of the kernel, and the stride.
        number: the number of the convolution in its block; 0: it is a projection.
    """
    channels, kernel, stride = sizes
    convolution, norm = (f"conv{number}", f"bn{number}") if number else ("0", "1")
    top = net.convolution(bottom, f"res{branch}", f"{module}.{convolution}", channels, kernel, stride)
    net.batch_norm(top, f"bn{branch}", f"scale{branch}", f"{module}.{norm}")
    return top
