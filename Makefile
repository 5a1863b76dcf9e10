# Everything on a fresh machine: `make demo` to see it work, `make test` to check it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu check bench clean

help:
	@echo "make demo    set up .venv and watch a mesh work"
	@echo "make test    set up .venv, lint, type-check and run the whole suite"
	@echo "make test-gpu  the laws and the GPU's own tests, on a GPU: where PYTHON has a torch that finds one"
	@echo "make check   ruff and mypy only"
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

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info softmesh/native/*.so
