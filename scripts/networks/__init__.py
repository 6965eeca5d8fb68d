"""The networks of ``prototxt/`` that are too long to write by hand, one file a family."""
