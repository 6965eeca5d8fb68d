"""Pipelines over ranks: what is known of devices and layers, and who runs what."""
