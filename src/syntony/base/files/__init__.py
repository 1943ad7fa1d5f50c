"""Files: read with suspicion, written whole or row by row, and formats that several rooms write."""
