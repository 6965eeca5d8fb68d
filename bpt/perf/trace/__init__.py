"""Traces: what every rank did when, in one file that Chrome's and Perfetto's viewers open."""
