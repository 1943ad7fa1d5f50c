"""How long a Schedule or a Program takes by the alpha-beta model with shared links."""
