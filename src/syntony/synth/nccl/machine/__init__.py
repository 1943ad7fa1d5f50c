"""A host as NCCL sees it: from a topology or from NCCL's own file, and the paths inside it."""
