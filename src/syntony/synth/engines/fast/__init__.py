"""Engine `fast`: all_to_all among boxes, whatever the bytes of each pair, planned in microseconds."""
