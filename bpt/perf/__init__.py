"""Measure, forecast, search, simulate, trace."""
