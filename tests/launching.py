"""What tests need to start programs of their own."""

import os


def clean_environment() -> dict[str, str]:
    """This process's environment without what its own launcher, if any, has put there."""
    launcher = ("PMI_", "PMIX_", "OMPI_COMM_", "MPI_LOCAL", "HYDRA_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(launcher)}
