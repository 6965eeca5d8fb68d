"""The arithmetic of layers on tensors, where torch's own differs from Caffe's, is slow, or is not exact enough.

Each kernel is tested against the plain formula. A layer in ``bpt.nn.layers`` reads the text and calls one of these.
"""
