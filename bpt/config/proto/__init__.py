"""The schema of bpt's files and everything that reads or writes them.

``bpt.config.proto`` is the schema itself: Caffe's messages with Caffe's field numbers, plus bpt's own fields from
1000 on. ``bpt_pb2`` holds the message classes, ``text`` and ``binary`` read and write files, ``solver`` reads
the two files every command starts from.
"""
