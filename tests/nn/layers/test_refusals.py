"""Settings and shapes that layers refuse, each with the words and the place (§) of its error."""

from __future__ import annotations

import re

import pytest

from tests.nn.layers.refusals import check_refusal

# The shapes of the bottoms | the text of the layer; the error stands below it.
REFUSALS = """
s(4,3) t(4) | type: "Accuracy" top: "y" accuracy_param { §top_k: 4 }
    top_k 4 is outside [1, 3], the classes along axis 1 of bottom "s" (4, 3)
s(4,3) t(4) | type: "Accuracy" top: "y" accuracy_param { §top_k: 0 }
    top_k 0 is outside [1, 3], the classes along axis 1 of bottom "s" (4, 3)
s(4,3) t(4) | type: "Accuracy" top: "y" accuracy_param { §axis: 5 }
    axis 5 is outside [-2, 2), the axes of bottom "s" (4, 3)
s(4,3) t(5) | bottom: "s" §bottom: "t" type: "Accuracy" top: "y"
    number of labels (5) must match number of predictions (4): "s" (4, 3) and "t" (5,). If the axis of the classes is 1 and predictions are (N, C, H, W), there must be N*H*W labels, integers in 0 ... C-1
a(2) | §type: "Clip" top: "y"
    needs clip_param { min max }
a(2) | type: "Clip" top: "y" clip_param { §min: 2 max: 1 }
    min 2 must be at most max 1
a() | §bottom: "a" type: "ArgMax" top: "y"
    needs a bottom of at least 1 axis, not a scalar
a(1,1,6,9) b(1,1,3,3) | top: "y" type: "Crop" crop_param { §offset: 4 }
    offset 4 and size 3 reach beyond axis 2: "a" (1, 1, 6, 9) and "b" (1, 1, 3, 3); offset can be 3 at most there
a(1,1,6,9) | §bottom: "a" top: "y" type: "Crop"
    Crop takes 2 bottoms, given 1 (a)
x(1,4,3,3) | top: "y" type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 2 §group: 2 }
    num_output 3 does not divide into 2 groups
a(2) | type: "Log" top: "y" log_param { §base: 1 }
    no logarithm has the base 1
x(3,2) s(3) | bottom: "x" bottom: "s" §top: "y" top: "z" type: "Filter"
    takes as many tops as bottoms without the last, the selector; given 2 tops and 2 bottoms
x(3,2) s(2) | §bottom: "x" bottom: "s" top: "y" type: "Filter"
    needs bottoms with equally many samples (axis 0), and as the last a selector with one number for each: "x" (3, 2) and "s" (2,)
x(3,2) s(3,2) | §bottom: "x" bottom: "s" top: "y" type: "Filter"
    needs bottoms with equally many samples (axis 0), and as the last a selector with one number for each: "x" (3, 2) and "s" (3, 2)
x() s() | §bottom: "x" bottom: "s" top: "y" type: "Filter"
    needs bottoms with equally many samples (axis 0), and as the last a selector with one number for each: "x" () and "s" ()
x(3,2) s() | §bottom: "x" bottom: "s" top: "y" type: "Filter"
    needs bottoms with equally many samples (axis 0), and as the last a selector with one number for each: "x" (3, 2) and "s" ()
a(2,3) b(2) | type: "HDF5Output" §hdf5_output_param { }
    hdf5_output_param needs a file_name
a(2,3) b(3) | §bottom: "a" bottom: "b" type: "HDF5Output" hdf5_output_param { file_name: "x.h5" }
    bottoms "a" (2, 3) and "b" (3,) have different numbers of samples (axis 0)
a(2,3) b() | §bottom: "a" bottom: "b" type: "HDF5Output" hdf5_output_param { file_name: "x.h5" }
    bottom "b" () has 0 axes; 1 to 4 can be written
a(2,1,1,1,1) b(2) | §bottom: "a" bottom: "b" type: "HDF5Output" hdf5_output_param { file_name: "x.h5" }
    bottom "a" (2, 1, 1, 1, 1) has 5 axes; 1 to 4 can be written
x(1,1,3,3) | top: "y" type: "Im2col" convolution_param { §kernel_size: 0 }
    kernel_size must be at least 1, not 0
x(1,1,3,3) | top: "y" type: "Interp" interp_param { zoom_factor: 2 §pad_end: 3 }
    pad_end must be 0, or negative to cut off, not 3
a(2,3,4) b(2,5,6) | bottom: "a" §bottom: "b" type: "Concat" top: "y"
    bottoms must agree in all axes but axis 1: "a" (2, 3, 4) and "b" (2, 5, 6)
a(2,3) b(2,5) c(2,3,1) | bottom: "a" bottom: "b" §bottom: "c" type: "Concat" top: "y" concat_param { axis: -1 }
    bottoms must agree in all axes but axis 1: "a" (2, 3) and "b" (2, 5) and "c" (2, 3, 1)
a(2,3) | type: "Concat" top: "y" concat_param { §axis: 2 }
    axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)
a(2,3) | type: "Concat" top: "y" concat_param { §concat_dim: 7 }
    concat_dim 7 is outside [-2, 2), the axes of bottom "a" (2, 3)
a(2,3) | type: "Concat" top: "y" concat_param { axis: 1 §concat_dim: 1 }
    give axis or concat_dim (its old form), not both
a(2,3) b(2,4) | bottom: "a" §bottom: "b" type: "Eltwise" top: "y"
    bottoms must have one shape: "a" (2, 3) and "b" (2, 4)
a(2,3) b(2,3) | type: "Eltwise" top: "y" eltwise_param { operation: MAX §coeff: 1 coeff: 2 }
    coeff goes with operation: SUM only
a(2,3) b(2,3) | type: "Eltwise" top: "y" eltwise_param { §coeff: 1 coeff: 2 coeff: 3 }
    needs one coeff for each bottom (2), not 3
a(2,3) | §bottom: "a" type: "Eltwise" top: "y"
    Eltwise takes at least 2 bottoms, given 1 (a)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" §slice_param { axis: 1 }
    3 tops cannot share axis 1 of bottom "a" (2, 7) equally; give slice_points
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §slice_point: 1 }
    needs one slice_point fewer than tops (2), not 1
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §slice_point: 4 slice_point: 4 }
    slice_points [4, 4] must ascend between 0 and 7, axis 1 of bottom "a" (2, 7)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §slice_point: 0 slice_point: 2 }
    slice_points [0, 2] must ascend between 0 and 7, axis 1 of bottom "a" (2, 7)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §slice_point: 5 slice_point: 3 }
    slice_points [5, 3] must ascend between 0 and 7, axis 1 of bottom "a" (2, 7)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §slice_point: 3 slice_point: 7 }
    slice_points [3, 7] must ascend between 0 and 7, axis 1 of bottom "a" (2, 7)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §slice_point: 3 slice_point: 9 }
    slice_points [3, 9] must ascend between 0 and 7, axis 1 of bottom "a" (2, 7)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { §axis: -3 }
    axis -3 is outside [-2, 2), the axes of bottom "a" (2, 7)
a(2,7) | type: "Slice" top: "p" top: "q" top: "r" slice_param { axis: 1 §slice_dim: 1 }
    give axis or slice_dim (its old form), not both
a(2,3) | type: "Silence" §top: "y"
    Silence takes 0 tops, given 1 (y)
a(4,5) b(4,6) | §bottom: "a" bottom: "b" type: "EuclideanLoss"
    bottoms must have equally many elements in each sample: "a" (4, 5) and "b" (4, 6)
a(4,6) b(6,4) | §bottom: "a" bottom: "b" type: "EuclideanLoss"
    predictions and labels must have equally many samples (axis 0): "a" (4, 6) and "b" (6, 4)
a(2,3) b(2,4) y(2) | §bottom: "a" bottom: "b" bottom: "y" type: "ContrastiveLoss"
    needs two bottoms of features (N, C) and N labels: "a" (2, 3) and "b" (2, 4) and "y" (2,)
a(2,3) b(2,4) | §bottom: "a" bottom: "b" type: "SigmoidCrossEntropyLoss"
    needs as many targets as scores: "a" (2, 3) and "b" (2, 4)
 | type: "MemoryData" top: "data" top: "label" §memory_data_param { channels: 1 height: 1 width: 1 }
    memory_data_param needs a batch_size of at least 1
a() | §bottom: "a" type: "MVN" top: "y"
    needs a bottom of at least 1 axis, not a scalar
a(3) | §bottom: "a" type: "Normalize" top: "y"
    needs a bottom of at least 2 axes (N, channels), not shape (3,)
x(3,2,4) m(3,2) | bottom: "x" bottom: "m" top: "y" type: "LSTM" §recurrent_param { }
    needs num_output, at least 1
x(3,2) m(3,2) | §bottom: "x" bottom: "m" top: "y" type: "LSTM" recurrent_param { num_output: 5 }
    needs inputs (T, N, …) with T steps, at least 1, of N streams, and markers (T, N): "x" (3, 2) and "m" (3, 2)
x(3,2,4) m(3,2,1) | §bottom: "x" bottom: "m" top: "y" type: "LSTM" recurrent_param { num_output: 5 }
    needs inputs (T, N, …) with T steps, at least 1, of N streams, and markers (T, N): "x" (3, 2, 4) and "m" (3, 2, 1)
x(0,2,4) m(0,2) | §bottom: "x" bottom: "m" top: "y" type: "LSTM" recurrent_param { num_output: 5 }
    needs inputs (T, N, …) with T steps, at least 1, of N streams, and markers (T, N): "x" (0, 2, 4) and "m" (0, 2)
x(3,2,4) m(3,2) s(3,4) | bottom: "x" bottom: "m" §bottom: "s" top: "y" type: "LSTM" recurrent_param { num_output: 5 }
    bottom "s" (3, 4), the input for all steps, must be (2, …): a row for each of the N = 2 streams of bottom "x" (3, 2, 4) (T, N, …)
x(3,2,4) m(3,2) h(1,2,5) c(2,5) | bottom: "x" bottom: "m" bottom: "h" §bottom: "c" top: "y" top: "h1" top: "c1" type: "LSTM" recurrent_param { num_output: 5 expose_hidden: true }
    the first states must be (1, 2, 5): "x" (3, 2, 4) and "m" (3, 2) and "h" (1, 2, 5) and "c" (2, 5)
x(3,2,4) m(3,2) h(1,2,5) | §bottom: "x" bottom: "m" bottom: "h" top: "y" top: "h1" top: "c1" type: "LSTM" recurrent_param { num_output: 5 expose_hidden: true }
    LSTM with expose_hidden takes 4 or 5 bottoms, given 3
x(3,2,4) m(3,2) | bottom: "x" bottom: "m" §top: "y" top: "h1" type: "LSTM" recurrent_param { num_output: 5 }
    LSTM without expose_hidden takes 1 top, given 2
a(2,3) | type: "Reduction" top: "y" reduction_param { §axis: 2 }
    axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)
a(2,3,4) | type: "Flatten" top: "y" flatten_param { §axis: 3 }
    axis 3 is outside [-3, 3), the axes of bottom "a" (2, 3, 4)
a(2,3,4) | type: "Flatten" top: "y" flatten_param { axis: 0 §end_axis: -4 }
    end_axis -4 is outside [-3, 3), the axes of bottom "a" (2, 3, 4)
a(2,3,4) | type: "Flatten" top: "y" flatten_param { axis: 2 §end_axis: 1 }
    end_axis 1 is before axis 2 of bottom "a" (2, 3, 4)
a(2,3,4) | type: "Permute" top: "y" permute_param { order: 0 §order: 3 }
    order 3 is outside [0, 3), the axes of bottom "a" (2, 3, 4)
a(2,3,4) | type: "Permute" top: "y" permute_param { order: 0 order: 1 §order: 0 }
    order names axis 0 twice
a(2,3) | type: "Tile" top: "y" §tile_param { axis: 1 }
    needs tiles, at least 1, not 0
a(2,3) | type: "Tile" top: "y" tile_param { axis: 1 §tiles: 0 }
    needs tiles, at least 1, not 0
a(2,3) | type: "Tile" top: "y" tile_param { §tiles: -2 }
    needs tiles, at least 1, not -2
a(2,3) | type: "Tile" top: "y" tile_param { §axis: 2 tiles: 2 }
    axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)
a(2,6) | type: "ShuffleChannel" top: "y" shuffle_channel_param { §group: 0 }
    group 0 does not divide the channels (axis 1) of bottom "a" (2, 6)
a(2,6) | type: "ShuffleChannel" top: "y" shuffle_channel_param { §group: 4 }
    group 4 does not divide the channels (axis 1) of bottom "a" (2, 6)
a(6) | §bottom: "a" type: "ShuffleChannel" top: "y"
    needs a bottom of at least 2 axes (N, channels), not shape (6,)
a(2,3) | type: "Softmax" top: "y" softmax_param { §axis: 2 }
    axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)
s(20,50,8,8) t(20) | bottom: "s" §bottom: "t" type: "SoftmaxWithLoss"
    number of labels (20) must match number of predictions (1280): "s" (20, 50, 8, 8) and "t" (20,). If the axis of the classes is 1 and predictions are (N, C, H, W), there must be N*H*W labels, integers in 0 ... C-1
s(4,5) t(2,2) | §bottom: "s" bottom: "t" type: "SoftmaxWithLoss"
    predictions and labels must have equally many samples (axis 0): "s" (4, 5) and "t" (2, 2)
s(4,5) t(4) | type: "SoftmaxWithLoss" softmax_param { §axis: 2 }
    axis 2 is outside [-2, 2), the axes of bottom "s" (4, 5)
x(1,2,1,1) | top: "y" type: "SPP" spp_param { §pyramid_height: 3 }
    a bottom of shape (1, 2, 1, 1) is too small for pyramid_height 3: the last grid would have bins of pad only
"""  # noqa: E501


@pytest.mark.parametrize(("layer", "message"), re.findall(r"^(\S.*)\n +(.*)$", REFUSALS, re.MULTILINE))
def test_refusals(layer: str, message: str) -> None:
    bottoms, _, body = layer.partition("|")
    shapes = {
        name: tuple(int(size) for size in sizes.split(",") if size)
        for name, sizes in re.findall(r"(\w+)\(([\d,]*)\)", bottoms)
    }
    check_refusal(body.strip(), message, **shapes)
