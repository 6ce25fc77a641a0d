"""A finished run for other programs: its dense part, and a card that describes it."""
