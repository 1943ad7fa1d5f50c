"""MPI libraries as peers: each runs in processes of its own, which its own mpiexec starts, beside the bench's ranks."""
