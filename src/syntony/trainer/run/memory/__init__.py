"""The memory that a step keeps: predicted and measured, dropped and brought again, lent to another device."""
