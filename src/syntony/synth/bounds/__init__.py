"""Numbers nobody can beat, with witnesses: distances and cuts in exact fractions."""
