"""`tt-run`: one process for each rank, through Open MPI, each in an environment of its own.

Options become a job (values only), a job becomes an mpirun command line (a list of arguments), and one
function runs it. All there is to check is checked before that.
"""
