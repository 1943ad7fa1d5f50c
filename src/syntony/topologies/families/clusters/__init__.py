"""Published clusters of boxes: rails and pods."""
