"""Engine `pipeline`: shallow trees in slices, for medium sizes."""
