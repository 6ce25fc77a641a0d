"""The research bench on top of the api: recipes, sweeps, searches, reports and diagnoses."""
