"""Searches: Optuna chooses the options of each trial."""
