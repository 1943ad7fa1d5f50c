"""Published clusters of such boxes: rails and pods."""
