"""The schema of bpt's files and everything that reads or writes them.

``bpt.config.proto`` is the schema itself: Caffe's messages with Caffe's field numbers, plus bpt's own fields from 1000
on. ``bpt_pb2`` holds the message classes. ``text`` and ``binary_files`` read and write files. ``sources`` reads the two
files that every command starts from.
"""
