"""Networks that published results, or users, have and that no family is."""
