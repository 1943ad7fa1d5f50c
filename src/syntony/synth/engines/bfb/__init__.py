"""Engine `bfb`: the fewest steps, each balanced exactly."""
