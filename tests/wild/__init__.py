"""Networks as people with Caffe have them, by shape: each is trained for some iterations."""
