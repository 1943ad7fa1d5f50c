"""Traffic: what several jobs do to shared links, and which way their messages take through the switches."""
