"""Networks without a hierarchy of switches: ranks forward messages, or share small switches."""
