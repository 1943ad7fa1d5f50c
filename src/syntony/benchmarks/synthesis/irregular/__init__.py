"""Tables of networks that are not regular: unequal wires, hosts short of NICs, links lost or slow."""
