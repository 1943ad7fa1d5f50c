"""Which algorithm runs a call where nobody asks for one by name.

settings     what people say (SYNTONY_ALGO, SYNTONY_CONFIG, SYNTONY_TUNE)     grammar: how they write it
table        what was measured here, kept in a file                            measure: how; costs: what follows
agreement    one conclusion for all ranks of a group, asked for by the core
probe        the table made when a group is, if asked for
cli          `syntony tune`
"""
