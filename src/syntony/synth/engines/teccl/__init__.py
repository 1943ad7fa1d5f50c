"""Engine `teccl`: schedules for one size, alphas included; search.py says how."""
