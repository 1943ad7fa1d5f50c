"""Which algorithm runs a call that names none.

settings     what users set (SYNTONY_ALGO, SYNTONY_CONFIG, SYNTONY_TUNE)      grammar: the syntax of rules
table        what was measured here, kept in a file                            measure: how; costs: the fitted model
agreement    the same choice on all ranks of a group; called by the core
probe        a table measured when a group is made, if asked for
cli          `syntony tune`
"""
