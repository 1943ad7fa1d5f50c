"""Jobs that go on when ranks are lost, and grow when they come back."""
