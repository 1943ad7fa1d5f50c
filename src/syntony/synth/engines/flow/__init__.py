"""Engine `flow`: all_to_all, gather and scatter at the exact throughput bound."""
