"""A small transformer trainer whose loop interprets a Plan (`syntony.overlap`)."""
