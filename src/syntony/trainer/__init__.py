"""A transformer trainer that can be read in an evening: its loop is an interpreter of a Plan (`syntony.overlap`)."""
