"""A transformer trainer to read in an evening: its loop is an interpreter of a Plan (`syntony.overlap`)."""
