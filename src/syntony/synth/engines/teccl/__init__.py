"""Engine `teccl`: schedules optimized for one size, alphas included; see search.py."""
