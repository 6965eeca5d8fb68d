"""Caffe's schedule: train, display, test, snapshot, stop."""
