# shellcheck shell=bash
# What every job of mpisign wants in its environment; sourced by the batch scripts. What you set yourself stays as it is.

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
# Slurm has already chosen each rank's cores. Where it claims more than there are, binding would fail.
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
