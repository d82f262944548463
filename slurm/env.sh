# shellcheck shell=bash
# What every job of mpisign wants in its environment; sourced by the batch files. What you set yourself stays as it is.

# The virtual environment: MPISIGN_VENV, on a disk that all nodes see. Without it: .venv where sbatch was called, else the
# python of your PATH. Its bin holds the mpirun of the same MPI.
_venv="${MPISIGN_VENV:-${SLURM_SUBMIT_DIR:-$PWD}/.venv}"
if [ -d "$_venv/bin" ]; then
    export PATH="$_venv/bin:$PATH"
elif [ -n "${MPISIGN_VENV:-}" ]; then
    echo "env.sh: MPISIGN_VENV=$MPISIGN_VENV has no folder bin: give the folder of a virtual environment" >&2
    return 2
fi
unset _venv

# Threads: those that Slurm gave each rank, for all libraries. One rank with all cores' threads slows all the others.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}"
export MKL_NUM_THREADS="${MKL_NUM_THREADS:-$OMP_NUM_THREADS}"
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-$OMP_NUM_THREADS}"
export NUMBA_NUM_THREADS="${NUMBA_NUM_THREADS:-$OMP_NUM_THREADS}"

# Since Slurm 22.05 srun no longer takes this over from sbatch by itself.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
    export SRUN_CPUS_PER_TASK="${SRUN_CPUS_PER_TASK:-$SLURM_CPUS_PER_TASK}"
fi

# Compiled kernels: on each node's own disk, since many nodes that write one cache on a shared disk get in each other's way.
# The cache holds code: where other users can write to this folder, set NUMBA_CACHE_DIR to one of your own.
export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/mpisign-numba-$(id -u)}"

# Open MPI's mpirun; srun and MPICH ignore these.
# Binding: Slurm has already chosen the job's cores. Where it claims more than there are, binding ranks would fail. On whole
# nodes `core` instead of `none` ties each rank to a core; srun does so by itself (srun --cpu-bind=…), MPICH with -bind-to core.
export PRTE_MCA_hwloc_default_binding_policy="${PRTE_MCA_hwloc_default_binding_policy:-none}"
# More ranks than slots are allowed, and each node is still filled in turn: ":oversubscribe" alone would put all on one.
export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-slot:oversubscribe}" # 5.x
export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"                       # 4.x
# A rank that waits leaves its core to one that computes.
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
# In a container you may be root, which Open MPI refuses unless told twice.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Print the name of the MPI that this Python uses, as in "Open MPI". (Loads the library without starting MPI.)
name_of_mpi() {
    python -c 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.get_vendor()[0])' || {
        echo "env.sh: $(command -v python || echo python) can't load mpi4py and an MPI: see python -m mpisign.doctor" >&2
        return 2
    }
}

# Fail unless the run with results in the folder $1 is done. Only this file says so: Open MPI's mpirun ends with 0 even when it
# has lost a node.
finished() {
    if [ ! -f "$1/summary.json" ]; then
        echo "env.sh: the run is not done: there is no $1/summary.json" >&2
        return 1
    fi
}
