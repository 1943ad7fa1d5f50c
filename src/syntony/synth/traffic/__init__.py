"""Traffic: how several jobs share links, and which paths their messages take through the switches."""
