"""Traces: the timeline of every rank in one file that Chrome's and Perfetto's viewers open."""
