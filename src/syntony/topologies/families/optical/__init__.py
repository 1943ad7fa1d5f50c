"""Networks whose circuits are set for the traffic they are given."""
