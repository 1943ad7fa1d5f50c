"""The emulated wires: addresses, routes, rates and delays."""
