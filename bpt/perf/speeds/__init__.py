"""Measures how fast each rank trains, for the profile that ``balance: STATIC`` reads."""
