"""bpt: a Caffe-style, config-driven trainer for convolutional networks."""

__version__ = "0.1.0"
