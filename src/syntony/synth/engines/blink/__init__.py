"""Engine `blink`: spanning trees of any weights, near the bound in little time, and then few of them."""
