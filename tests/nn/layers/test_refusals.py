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
x0(2,3,4,5) x1(2,3,5,5) | §bottom: "x0" bottom: "x1" top: "y" type: "Crop"
    offset 0 and size 5 reach beyond axis 2: "x0" (2, 3, 4, 5) and "x1" (2, 3, 5, 5); "x1" must not be larger than "x0" from axis 2 on (see axis, or swap them)
x0(2,3,4,5) x1(2,3,1,3) | top: "y" type: "Crop" crop_param { §offset: 3 }
    offset 3 and size 3 reach beyond axis 3: "x0" (2, 3, 4, 5) and "x1" (2, 3, 1, 3); offset can be 2 at most there
x0(2,3,4,5) x1(2,3,1,1) | top: "y" type: "Crop" crop_param { §offset: 1 offset: 1 offset: 1 }
    offset must be given once, or once an axis from axis 2 on (2 in shape (2, 3, 4, 5)), not 3 times
x0(2,3,4,5) x1(2,3,1,1) | top: "y" type: "Crop" crop_param { §axis: 4 }
    axis 4 is outside [-4, 4), the axes of bottom "x0" (2, 3, 4, 5)
x0(2,3,4,5) x1(2,3,4) | §bottom: "x0" bottom: "x1" top: "y" type: "Crop" crop_param { }
    needs bottoms with equally many axes: "x0" (2, 3, 4, 5) and "x1" (2, 3, 4)
x0(1,2,5,5) | top: "y" type: "Convolution" §convolution_param { num_output: 2 }
    needs kernel_size, or kernel_h and kernel_w
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 §kernel_size: 0 }
    kernel_size must be at least 1, not 0
x0(1,2,5,5) | top: "y" type: "Convolution" §convolution_param { num_output: 2 kernel_h: 3 kernel_w: 0 }
    kernel_size must be at least 1, not 0
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 §stride: 0 }
    stride must be at least 1, not 0
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 §dilation: 0 }
    dilation must be at least 1, not 0
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 §kernel_h: 3 }
    kernel_h is given alone; kernel_h and kernel_w go together
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 §stride_w: 2 }
    stride_w is given alone; stride_h and stride_w go together
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 §kernel_h: 3 kernel_w: 3 }
    give kernel_size, or kernel_h and kernel_w, not both
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 pad: 1 §pad_h: 1 }
    give pad, or pad_h and pad_w, not both
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 §kernel_size: 3 kernel_size: 3 kernel_size: 3 }
    kernel_size must be given once, or once a spatial axis (2 in shape (1, 2, 5, 5)), not 3 times
x0(1,2,5,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 §stride: 1 stride: 1 }
    stride must be given once, or once a spatial axis (3 in shape (1, 2, 5, 5, 5)), not 2 times
x0(1,2,5,5,5) | top: "y" type: "Convolution" §convolution_param { num_output: 2 kernel_h: 3 kernel_w: 3 }
    kernel_h and kernel_w are for 2 spatial axes, a bottom of shape (1, 2, 5, 5, 5) has 3
x0(1,2,2,9) | top: "y" type: "Convolution" convolution_param { num_output: 2 §kernel_size: 3 dilation: 2 pad: 1 }
    a kernel that reaches over (5, 5) is bigger than the bottom of shape (1, 2, 2, 9) with pad (1, 1)
x0(1,2,5,5) | top: "y" type: "Convolution" §convolution_param { kernel_size: 3 }
    needs num_output, at least 1
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { §num_output: 0 kernel_size: 3 }
    needs num_output, at least 1
x0(1,2,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 §group: 0 }
    group must be at least 1, not 0
x0(1,3,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 §group: 2 }
    the 3 channels of a bottom of shape (1, 3, 5, 5) do not divide into 2 groups
x0(1,4,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 §group: 2 }
    num_output 3 does not divide into 2 groups
x0(1,4,5,5) | top: "y" type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 §axis: 4 }
    axis 4 is outside [-4, 4), the axes of bottom "x0" (1, 4, 5, 5)
x0(1,4) | §bottom: "x0" top: "y" type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 }
    needs 1 to 3 spatial axes after the channels (axis 1), a bottom of shape (1, 4) has 0
x0(1,4,5,5,5,5) | §bottom: "x0" top: "y" type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 }
    needs 1 to 3 spatial axes after the channels (axis 1), a bottom of shape (1, 4, 5, 5, 5, 5) has 4
x0(1,2,5,5) x1(1,2,5,6) | bottom: "x0" §bottom: "x1" top: "y0" top: "y1" type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 }
    all bottoms must have one shape: "x0" has (1, 2, 5, 5), "x1" (1, 2, 5, 6)
x0(1,2,2,5) | top: "y" type: "Deconvolution" §convolution_param { kernel_size: 3 }
    needs num_output, at least 1
x0(1,2,2,5) | top: "y" type: "Deconvolution" §convolution_param { num_output: 2 }
    needs kernel_size, or kernel_h and kernel_w
x0(1,2,2,5) | top: "y" type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 3 §group: 2 }
    num_output 3 does not divide into 2 groups
x0(1,2,2,5) | top: "y" type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 3 §group: 4 }
    the 2 channels of a bottom of shape (1, 2, 2, 5) do not divide into 4 groups
x0(1,2,2,5) | top: "y" type: "Deconvolution" convolution_param { num_output: 2 §kernel_size: 3 pad: 2 }
    pad (2, 2) takes away all that the windows of a bottom of shape (1, 2, 2, 5) reach over
x0(1,2,5,5) | top: "y" type: "Im2col" §convolution_param { }
    needs kernel_size, or kernel_h and kernel_w
x0(1,2,5,5) | top: "y" type: "Im2col" convolution_param { kernel_size: 2 §stride: 0 }
    stride must be at least 1, not 0
x0(1,2,3,5) | top: "y" type: "Im2col" convolution_param { §kernel_size: 4 }
    a kernel that reaches over (4, 4) is bigger than the bottom of shape (1, 2, 3, 5) with pad (0, 0)
x0(1,2) | §bottom: "x0" top: "y" type: "Im2col" convolution_param { kernel_size: 4 }
    needs 1 to 3 spatial axes after the channels (axis 1), a bottom of shape (1, 2) has 0
x0(2,3,4) x1(4) | bottom: "x0" §bottom: "x1" top: "y" type: "Scale"
    bottom "x1" of shape (4,) does not fit bottom "x0" of shape (2, 3, 4) from axis 1 on
x0(2,3,4) x1(4,1) | bottom: "x0" §bottom: "x1" top: "y" type: "Scale" scale_param { axis: 2 }
    bottom "x1" of shape (4, 1) does not fit bottom "x0" of shape (2, 3, 4) from axis 2 on
x0(2,3) | top: "y" type: "Scale" scale_param { §num_axes: -2 }
    num_axes must be at least 0, or -1 for all from axis on; not -2
x0(2,3) | top: "y" type: "Scale" scale_param { §num_axes: 2 }
    num_axes 2 from axis 1 on reaches over the end of a bottom of shape (2, 3)
x0(2,3) | top: "y" type: "Scale" scale_param { §axis: 2 }
    axis 2 is outside [-2, 2), the axes of bottom "x0" (2, 3)
x0(2,3) x1(3) x2(3) | §bottom: "x0" bottom: "x1" bottom: "x2" top: "y" type: "Scale"
    Scale takes 1 to 2 bottoms, given 3 (x0, x1, x2)
x0(2,3) x1(2) | bottom: "x0" §bottom: "x1" top: "y" type: "Bias"
    bottom "x1" of shape (2,) does not fit bottom "x0" of shape (2, 3) from axis 1 on
x0(2,3) | top: "y" type: "Bias" bias_param { §num_axes: -3 }
    num_axes must be at least 0, or -1 for all from axis on; not -3
x0(2,3) | top: "y" type: "Bias" bias_param { axis: 1 §num_axes: 2 }
    num_axes 2 from axis 1 on reaches over the end of a bottom of shape (2, 3)
x0(2,3) | top: "y" type: "Bias" bias_param { §axis: -3 }
    axis -3 is outside [-2, 2), the axes of bottom "x0" (2, 3)
x0(2,3) | top: "y" type: "InnerProduct" §inner_product_param { }
    needs num_output, at least 1
x0(2,3) | top: "y" type: "InnerProduct" inner_product_param { §num_output: 0 }
    needs num_output, at least 1
x0(2,3) | top: "y" type: "InnerProduct" inner_product_param { num_output: 2 §axis: -3 }
    axis -3 is outside [-2, 2), the axes of bottom "x0" (2, 3)
x0(1,3,2,2) | top: "y" type: "LRN" lrn_param { §local_size: 4 }
    local_size must be odd, not 4
x0(1,3,2,2) | top: "y" type: "LRN" lrn_param { §local_size: 0 }
    local_size must be odd, not 0
x0(1,3,2) | §bottom: "x0" top: "y" type: "LRN" lrn_param { }
    needs a bottom of 4 axes (N, channels, H, W), not shape (1, 3, 2)
x0() | §bottom: "x0" top: "y" type: "BatchNorm" batch_norm_param { }
    needs a bottom of at least 1 axis, not a scalar
x0(2,3) | top: "y" type: "BatchNorm" param { lr_mult: 0 } §param { lr_mult: 2 }
    param 1 has lr_mult 2, but the statistics of a BatchNorm are not trained; write lr_mult: 0 or leave param out
x0(3) | §bottom: "x0" top: "y" type: "PReLU"
    needs a bottom of at least 2 axes (N, channels), not shape (3,)
x0(3,2) x1(3) | §bottom: "x0" bottom: "x1" top: "y" type: "TripletLoss"
    needs three bottoms: anchors, positives and negatives. With two, features and triplets or labels, Caffe's forks have different layers; slice the features into three blobs
x0(1,2,5,6) | top: "y" type: "Pooling" §pooling_param { }
    needs kernel_size, or kernel_h and kernel_w, or global_pooling: true
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { §kernel_size: 0 }
    kernel_size must be at least 1, not 0
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { kernel_size: 2 §stride: 0 }
    stride must be at least 1, not 0
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { kernel_size: 2 kernel_h: 2 §kernel_w: 2 }
    give kernel_size, or both kernel_h and kernel_w; not kernel_size and kernel_h and kernel_w
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { §kernel_h: 2 }
    give kernel_size, or both kernel_h and kernel_w; not kernel_h
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { kernel_size: 2 §pad_w: 1 }
    give pad, or both pad_h and pad_w; not pad_w
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { kernel_size: 2 §stride_h: 1 }
    give stride, or both stride_h and stride_w; not stride_h
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { kernel_size: 2 §pad: 2 }
    pad 2 must be smaller than the kernel of 2
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { §kernel_size: 7 }
    a kernel of (7, 7) is bigger than the bottom of shape (1, 2, 5, 6) with pad (0, 0)
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { §kernel_size: 7 stride: 4 round_mode: FLOOR }
    a kernel of (7, 7) is bigger than the bottom of shape (1, 2, 5, 6) with pad (0, 0)
x0(1,2,5,6) | top: "y" type: "Pooling" §pooling_param { global_pooling: true kernel_size: 2 }
    global_pooling takes the whole channel; leave kernel_size out
x0(1,2,5,6) | top: "y" type: "Pooling" §pooling_param { global_pooling: true stride: 2 }
    global_pooling takes no pad and no stride
x0(1,2,5,6) | top: "y" type: "Pooling" §pooling_param { global_pooling: true pad: 1 }
    global_pooling takes no pad and no stride
x0(1,2,0,6) | §bottom: "x0" top: "y" type: "Pooling" pooling_param { global_pooling: true }
    a bottom of shape (1, 2, 0, 6) has no elements to pool
x0(1,2,5,6) | top: "y" type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 §pad: 1 }
    pad is for MAX and AVE pooling only
x0(1,2) | §bottom: "x0" top: "y" type: "Pooling" pooling_param { kernel_size: 2 }
    needs 1 to 3 spatial axes after (N, channels), not shape (1, 2)
x0(1,1,1,1,1,1) | §bottom: "x0" top: "y" type: "Pooling" pooling_param { kernel_size: 2 }
    needs 1 to 3 spatial axes after (N, channels), not shape (1, 1, 1, 1, 1, 1)
x0(1,2,5) | top: "y" type: "Pooling" pooling_param { §kernel_h: 2 kernel_w: 2 }
    kernel_h and kernel_w are for 2 spatial axes, a bottom of shape (1, 2, 5) has 1
x0(1,2,5,6) | top: "y0" §top: "y1" type: "Pooling" pooling_param { pool: AVE kernel_size: 2 }
    only MAX pooling has a second top (the places of the maxima)
x0(1,2,4,4) x1(2,5) | top: "y" type: "ROIAlign" roi_align_param { pooled_h: 1 pooled_w: 1 sampling_ratio: 2 §pad_ratio: 0.5 }
    sampling_ratio belongs to Mask R-CNN's ROIAlign and pad_ratio to Cascade R-CNN's; give one of them
x0(1,2,5,5) | top: "y" type: "SPP" §spp_param { }
    needs pyramid_height, at least 1
x0(1,2,5,5) | top: "y" type: "SPP" spp_param { §pyramid_height: 0 }
    needs pyramid_height, at least 1
x0(1,2) | §bottom: "x0" top: "y" type: "SPP" spp_param { pyramid_height: 2 }
    needs 1 to 3 spatial axes after (N, channels), not shape (1, 2)
x0(1,2,0,3) | §bottom: "x0" top: "y" type: "SPP" spp_param { pyramid_height: 2 }
    a bottom of shape (1, 2, 0, 3) has no elements to pool
x0(1,2,5,8) | top: "y" type: "SPP" spp_param { §pyramid_height: 3 }
    a bottom of shape (1, 2, 5, 8) is too small for pyramid_height 3: the last grid would have bins of pad only
x0(1,2,5,8) | top: "y" type: "SPP" spp_param { §pyramid_height: 4294967295 }
    a bottom of shape (1, 2, 5, 8) is too small for pyramid_height 4294967295: the last grid would have bins of pad only
x0(1,2,4,5) | top: "y" type: "SPP" spp_param { pyramid_height: 2 §pool: STOCHASTIC }
    STOCHASTIC takes no pad, and 2 bins do not divide a bottom of shape (1, 2, 4, 5)
x0(1,1,2,2) | top: "y" type: "Upsample" §upsample_param { }
    needs scale with one bottom: Caffe's forks do not agree on a default
x0(1,1,2,2) | top: "y" type: "Upsample" upsample_param { §scale: 0 }
    scale must be at least 1, not 0
x0(1,1,2,2) | top: "y" type: "Upsample" upsample_param { §scale_h: 2 }
    scale_h is given alone; scale_h and scale_w go together
x0(1,1,2,2) | top: "y" type: "Upsample" upsample_param { scale: 2 §scale_h: 2 scale_w: 2 }
    give scale, or scale_h and scale_w, not both
x0(1,1,2) | top: "y" type: "Upsample" upsample_param { §scale_h: 2 scale_w: 2 }
    scale_h is for 2 spatial axes, the bottom has 1
x0(1,1,2,2) | top: "y" type: "Upsample" upsample_param { scale: 2 §pad_out_h: true }
    pad_out_h goes with a mask, the second bottom
x0(1,1,2,2) | top: "y" type: "Upsample" upsample_param { §upsample_h: 4 upsample_w: 4 }
    upsample_h goes with a mask, the second bottom
x0(1,1,2,2) x1(1,1,2,2) | top: "y" type: "Upsample" upsample_param { §upsample_w: 4 }
    upsample_w is given alone; upsample_h and upsample_w go together
x0(1,1,2,2) x1(1,1,2,2) | top: "y" type: "Upsample" upsample_param { scale: 3 §pad_out_w: true }
    pad_out_w goes with a scale of 2 and 2 spatial axes
x0(1,1,2,2) x1(1,1,2,2) | top: "y" type: "Upsample" upsample_param { upsample_h: 4 upsample_w: 4 §pad_out_w: true }
    pad_out_w goes with a scale, not with upsample_h and upsample_w
x0(1,1,2,2) x1(1,1,2,3) | bottom: "x0" §bottom: "x1" top: "y" type: "Upsample"
    the mask must have the shape of the values: "x0" (1, 1, 2, 2) and "x1" (1, 1, 2, 3)
x0(1,2) | §bottom: "x0" top: "y" type: "Upsample" upsample_param { scale: 2 }
    needs 1 to 3 spatial axes after (N, channels), not shape (1, 2)
x0(1,2,0,1) | §bottom: "x0" top: "y" type: "Upsample" upsample_param { scale: 2 }
    the top would have no elements: "x0" (1, 2, 0, 1)
x0(2,3,4) | top: "y" type: "CropCenter" crop_center_param { §crop_size: 1 crop_size: 1 }
    give a crop_size for each axis, 3, not 2: "x0" (2, 3, 4)
x0(2,3,4) | top: "y" type: "CropCenter" crop_center_param { crop_size: 0 crop_size: 1 §crop_size: 2 }
    crop_size 2 on both sides leaves nothing of axis 2: "x0" (2, 3, 4)
x(1,1,3,3) | top: "y" type: "Upsample" upsample_param { scale: 2 §upsample_h: 3 upsample_w: 3 }
    upsample_h goes with a mask, the second bottom
"""  # noqa: E501


@pytest.mark.parametrize(("layer", "message"), re.findall(r"^(\S.*)\n +(.*)$", REFUSALS, re.MULTILINE))
def test_refusals(layer: str, message: str) -> None:
    bottoms, _, body = layer.partition("|")
    shapes = {
        name: tuple(int(size) for size in sizes.split(",") if size)
        for name, sizes in re.findall(r"(\w+)\(([\d,]*)\)", bottoms)
    }
    check_refusal(body.strip(), message, **shapes)
