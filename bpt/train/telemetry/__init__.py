"""Telemetry of a run: slow ranks and their causes, the metrics as a file, and a live view."""
