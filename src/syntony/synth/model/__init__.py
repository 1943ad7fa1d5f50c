"""The nouns of synthesis: Collective, Schedule, Program, Target, Bound."""
