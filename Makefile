# Everything on a fresh machine: `make demo` to see it work, `make test` to check it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu check bench docs dist shell clean

help:
	@echo "make demo    set up .venv and watch a mesh work"
	@echo "make test    set up .venv, lint, type-check and run the whole suite"
	@echo "make test-gpu  the laws and the GPU's own tests, on a GPU: where PYTHON has a torch that finds one"
	@echo "make check   ruff and mypy only"
	@echo "make shell   a shell in which softmesh, tt-run and python are those of .venv"
	@echo "make docs    the manual, in build/site/index.html"
	@echo "make dist    source archive, wheel with the parts in C, and wheel without, in dist/"
	@echo "make bench   the benchmarks, against plain torch (and JAX and MPI, where installed)"
	@echo "make clean   remove .venv and caches"

$(READY): requirements-dev.txt pyproject.toml setup.py $(wildcard softmesh/native/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)
	@$(BIN)/softmesh demo

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One torch thread for each of the test workers: two pools on the same cores only get in each other's way.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# With the torch that finds the card, which is not that of .venv; the packages of requirements-dev.txt are needed too.
test-gpu:
	SOFTMESH_DEVICE=cuda $(PYTHON) -m pytest tests/gpu tests/unit/test_native_bfloat16.py tests/unit/test_ops_llm_caches.py \
		tests/properties/test_products.py tests/properties/test_trace_laws.py tests/properties/test_collective_laws.py \
		tests/properties/test_ops_on_meshes.py tests/properties/test_round_trips.py tests/properties/test_copy_on_write.py \
		tests/properties/test_placements_tell_the_truth.py

bench: $(READY)
	$(BIN)/softmesh bench ops
	$(BIN)/softmesh bench mlp
	$(BIN)/softmesh bench collectives
	$(BIN)/softmesh bench fabric
	$(BIN)/softmesh bench runtime
	$(BIN)/softmesh bench unified
	$(BIN)/softmesh bench llama
	$(BIN)/softmesh bench train
	$(BIN)/softmesh bench mpi

shell: $(READY)
	@echo "softmesh, tt-run, pytest and python are those of $(VENV); leave with exit"
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" PATH="$(CURDIR)/$(BIN):$$PATH" $${SHELL:-/bin/sh}

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

# A wheel with the parts in C for each Python on this machine (with pyenv: PYENV_VERSION=3.10.13:3.11.7:... make dist), and
# one without for all others; each is built from the source archive alone.
WHEEL_PYTHONS ?= python3.10 python3.11 python3.12 python3.13
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --sdist --outdir dist . > /dev/null
	@for python in $(WHEEL_PYTHONS); do \
		$$python -c "" 2>/dev/null || { echo "$$python is not on this machine: no wheel for it"; continue; }; \
		$$python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist dist/*.tar.gz || exit 1; \
	done
	SOFTMESH_PURE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist dist/*.tar.gz
	@ls -l dist

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info softmesh/native/*.so
