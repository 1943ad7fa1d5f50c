"""How long parts of synthesis take, and how right they are: bounds, the simulator, topologies."""
