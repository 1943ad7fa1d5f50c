"""Chooses the algorithm of a call that names none.

settings     the user's (SYNTONY_ALGO, SYNTONY_CONFIG, SYNTONY_TUNE)          grammar: the syntax of rules
table        measurements of this machine, kept in a file                     measure: how; costs: the fitted model
agreement    the same choice on all ranks of a group; called by the core
probe        measures a table when a group is made, if asked for
cli          `syntony tune`
"""
