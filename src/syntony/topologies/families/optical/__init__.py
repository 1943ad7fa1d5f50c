"""Networks whose circuits are configured for a given traffic."""
