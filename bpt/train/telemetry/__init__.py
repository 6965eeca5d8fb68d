"""Telemetry of a run: which rank is slow and why, the metrics as a file, and a live view."""
