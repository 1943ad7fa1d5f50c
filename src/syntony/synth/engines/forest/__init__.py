"""Engine `forest`: spanning trees packed at the exact throughput bound."""
