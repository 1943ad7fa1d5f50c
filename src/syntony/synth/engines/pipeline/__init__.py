"""Engine `pipeline`: shallow trees in slices, for middle sizes."""
